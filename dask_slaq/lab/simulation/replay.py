"""Replay of the event log of a live plugin, which compares decisions (``dask slaq replay``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.recording import Event, Replay
from dask_slaq.lab.simulation.workload import decode


class LogError(SlaqError, ValueError):
    """Error in a log; the message names the file and the line."""


def replay_log(path: str | Path) -> dict[str, Any]:
    """Replay all recordings in a log on new engines.

    `path` is the newest file; older ones have its name and ``.1``, ``.2`` and so on.

    Returns the keys of the JSON output: the numbers ``decisions``, ``reproduced`` and ``skipped``;
    ``why`` decisions were skipped; the first ``difference``; ``said``, a summary in words; and
    ``notes``, such as those on lines that a crash cut off, which are skipped. Raises `LogError` if
    a file cannot be read, has no events, or has an invalid one.
    """
    replay, notes, place = Replay(), list[str](), ""
    for place, event in events_of(Path(path), notes):
        try:
            replay.feed(event)  # which checks it
        except SlaqError as error:
            raise LogError(f"{place}: {error}") from error
    if not place:
        raise LogError(f"{path}: no event in this log")
    words = f"{replay.reproduced} of {replay.decisions} decisions reproduced"
    if replay.difference is not None:
        words += f"; {replay.difference}"
    if replay.skipped:
        words += f"; {replay.skipped} could not be replayed: {replay.why}"
    return {
        "decisions": replay.decisions,
        "reproduced": replay.reproduced,
        "skipped": replay.skipped,
        "why": replay.why,
        "difference": replay.difference and asdict(replay.difference),
        "said": words,
        "notes": notes,
    }


def events_of(path: Path, notes: list[str]) -> Iterator[tuple[str, Event]]:
    """Yield the place and the event of every line, but for those cut off by a crash."""
    broken, where, line, begun = "", "", b"", False
    for place, line in _lines(path):
        try:
            event = decode(line)
        except ValueError as error:
            if broken:
                raise LogError(broken) from None
            broken, where = f"{place}: {error}", place
            continue
        starts = isinstance(event, dict) and event.get("event") == "start"
        if broken and not (starts and event.get("continued")):
            if not starts:
                raise LogError(broken)
            notes.append(f"{where}: the line is cut off and is left out")
            broken = ""
        begun = True
        yield place, event
    if broken:
        if line.endswith(b"\n") or not begun:
            raise LogError(broken)
        notes.append(f"{where}: the last line is cut off and is left out")


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the text of every line of all files that is not blank, oldest first."""
    files = [path]
    while (before := path.with_name(f"{path.name}.{len(files)}")).exists():
        files.append(before)
    for file in files[::-1]:
        try:
            with open(file, "rb") as lines:
                for k, line in enumerate(lines, start=1):
                    if line.strip():
                        yield f"{file}, line {k}", line
        except OSError as error:
            raise LogError(f"{file}: cannot be read: {error}") from error
