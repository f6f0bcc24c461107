"""Event logs of a live plugin: their files, recordings and jobs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.recording import SETTINGS, Event, Replay, kind_from_dict
from dask_slaq.simulation.workload import decode

#: Beginning of the line that starts a recording.
START = b'{"event":"start"'
#: Seconds over which the overhead of tasks is averaged: long enough for many tasks to end.
WINDOW = 10.0


class LogError(ValueError):
    """Error in a log; the message names the file and the line."""


def read(path: str | Path, replay: Replay) -> tuple[list[Recording], list[str]]:
    """Read the recordings in a log, oldest first, and feed its events to a `replay`.

    `path` is the newest file; older ones have its name and ``.1``, ``.2`` and so on. Also returns
    notes on lines that a crash cut off, which are skipped. Raises `LogError` if a file cannot be
    read, has no events, or has an invalid one.
    """
    found: list[Recording] = []
    notes: list[str] = []
    for place, event in _events(Path(path), notes):
        try:
            replay.feed(event)  # which checks it
        except SlaqError as error:
            raise LogError(f"{place}: {error}") from error
        if event["event"] != "start":
            found[-1].feed(event)
        elif not (found and event.get("continued")):
            found.append(Recording(event))
    if not found:
        raise LogError(f"{path}: no event in this log")
    return found, notes


def _events(path: Path, notes: list[str]) -> Iterator[tuple[str, Event]]:
    """Yield the place (file and line) and the event of every line of all files.

    A line that is not JSON is skipped with a note if a crash can have cut it off: at the end of the
    log, or before the next recording, which may begin on the same line.
    """
    broken, where, line, begun = "", "", b"", False
    for place, line in _lines(path):
        try:
            event = decode(line)
        except ValueError as error:
            if broken:
                raise LogError(broken) from None
            begins = line.find(START, 1)
            if begins < 0:
                broken, where = f"{place}: {error}", place
                continue
            notes.append(f"{place}: the beginning of the line is cut off and is left out")
            try:
                event = decode(line[begins:])
            except ValueError as again:
                raise LogError(f"{place}: {again}") from None
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


def _files(path: Path) -> list[Path]:
    """Return the files of a log, oldest first."""
    files = [path]
    while (before := path.with_name(f"{path.name}.{len(files)}")).exists():
        files.append(before)
    return files[::-1]


def _lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the place and the text of every line of all files that is not blank, oldest first."""
    for file in _files(path):
        try:
            with open(file, "rb") as lines:
                for k, line in enumerate(lines, start=1):
                    if line.strip():
                        yield f"{file}, line {k}", line
        except OSError as error:
            raise LogError(f"{file}: cannot be read: {error}") from error


@dataclass
class RecordedJob:
    """History of one job in a recording. Lists have one element per report."""

    name: str
    #: Seconds on the clock of the recording, like all times.
    arrival: float
    #: ``weight``, ``min_share``, ``max_share``, ``target``; the last ``max_iter`` and ``kind``, if
    #: there was one.
    settings: dict[str, Any]
    #: Whether the job reports a loss; False for unowned tasks.
    reports: bool
    times: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    #: Core-seconds of the tasks that ended since the report before or the arrival.
    work: list[float] = field(default_factory=list)
    #: Thread-seconds that these tasks, their inputs and their results were in transit. There may be
    #: one more element, for tasks after the last report.
    overhead: list[float] = field(default_factory=list)
    #: Seconds without a ready or running task.
    idle: list[float] = field(default_factory=list)
    #: Mean threads that the job could use since the report before.
    threads: list[float] = field(default_factory=list)
    #: Core-seconds since the last report.
    waiting: float = 0.0
    #: Most tasks at once.
    most: float = 0.0
    #: Time at which the job ended; None if it had not.
    left: float | None = None
    #: How it ended: ``done``, ``stopped``, ``failed`` or ``lost``; None if it had not.
    outcome: str | None = None
    #: Threads granted, and the thread-seconds that the job could use from its last report `until`.
    share: float = 0.0
    usable: float = 0.0
    until: float = 0.0

    def add_loss(self, loss: float | None) -> None:
        """Add the loss of a report; None for one that is not finite, for which a neighbour counts.

        That is the one before it, or the first finite one.
        """
        if loss is None:
            loss = self.losses[-1] if self.losses else math.nan
        elif self.losses and math.isnan(self.losses[-1]):
            self.losses = [loss] * len(self.losses)
        self.losses.append(loss)


@dataclass
class Recording:
    """One recording, from one `start` of the plugin to the next."""

    start: Event
    #: In order of arrival.
    jobs: list[RecordedJob] = field(default_factory=list)
    #: Time and threads of all workers, at each decision at which they had changed.
    threads: list[tuple[float, int]] = field(default_factory=list)
    decisions: int = 0
    #: Number of times that a job gained a worker.
    moved: int = 0
    #: Jobs that arrived before the log begins.
    unknown: set[str] = field(default_factory=set)
    _running: dict[str, RecordedJob] = field(default_factory=dict)
    _held: dict[str, set[str]] = field(default_factory=dict)
    # Thread-seconds for which there were tasks, less those that ended tasks computed; the ended
    # tasks (job, iteration, count) to share the rest among; and the time of the last sharing.
    _balance: float = 0.0
    _ended: list[tuple[RecordedJob, int, int]] = field(default_factory=list)
    _since: float = -math.inf

    def feed(self, event: Event) -> None:
        """Add the next event, checked by `core.recording.events.check`."""
        kind = event["event"]
        if kind in ("decide", "arrive", "leave"):
            for job in self._running.values():
                self._pass(job, event["time"])
        if kind == "decide":
            self._decided(event)
        elif kind == "arrive":
            settings = {name: event[name] for name in SETTINGS}
            if "kind" in event:
                settings["kind"] = kind_from_dict(event["kind"])
            now = event["time"]
            job = RecordedJob(event["job"], now, settings, event["reports"], until=now)
            self.jobs.append(job)
            self._running[job.name] = job
        elif "job" in event and kind != "past_run":
            known = self._running.get(event["job"])
            if known is None:
                self.unknown.add(event["job"])
            else:
                self._happened(kind, known, event)

    def _pass(self, job: RecordedJob, now: float) -> None:
        """Count the thread-seconds that a job could use until `now`.

        A job alone on the cluster could use all threads, since idle slots are lent. A job that
        shared it, or had a strict worker set, could use the threads that it was granted.
        """
        alone = len(self._running) == 1 and not self.start["strict"]
        threads = self.threads[-1][1] if self.threads else 0
        job.usable += (threads if alone else job.share) * (now - job.until)
        job.until = now

    def _account(self) -> None:
        """Share the thread-seconds that no task computed equally among the tasks that ended.

        The balance includes compute of tasks that still run; it is subtracted when they end.
        """
        count = sum(count for _, _, count in self._ended)
        if count == 0:
            return
        each = max(self._balance, 0.0) / count
        self._balance -= each * count
        for job, k, n in self._ended:
            job.overhead += [0.0] * (k + 1 - len(job.overhead))
            job.overhead[k] += each * n
        self._ended.clear()

    def _happened(self, kind: str, job: RecordedJob, event: Event) -> None:
        if kind == "tasks":
            job.waiting += event["seconds"]
            self._balance -= event["seconds"]
            self._ended.append((job, len(job.times), event["count"]))
            job.most = max(job.most, event["at_once"])
        elif kind == "report":
            self._pass(job, event["time"])
            lasted = job.until - (job.times[-1] if job.times else job.arrival)
            job.threads.append(job.usable / lasted if lasted > 0 else job.share)
            job.usable = 0.0
            job.times.append(event["time"])
            job.add_loss(event["loss"])
            job.work.append(job.waiting)
            job.overhead += [0.0] * (len(job.times) - len(job.overhead))
            job.idle.append(max(event.get("idle", 0.0), 0.0))
            job.waiting = 0.0
        elif kind == "max_iter":
            job.settings["max_iter"] = event["max_iter"]
        elif kind == "kind":
            job.settings["kind"] = kind_from_dict(event["kind"])
        elif kind == "leave":
            self._account()
            job.left, job.outcome = event["time"], event.get("outcome", "lost")
            del self._running[job.name]
            self._held.pop(job.name, None)

    def _decided(self, event: Event) -> None:
        self.decisions += 1
        self._balance += event.get("offered", 0.0)
        if event["time"] - self._since >= WINDOW:
            self._account()
            self._since = event["time"]
        if not self.threads or self.threads[-1][1] != event["threads"]:
            self.threads.append((event["time"], event["threads"]))
        for name, grant in event["grants"].items():
            if name in self._running:
                self._running[name].share = grant.get("share", 0.0)
            held = {*grant.get("workers", ())}
            self.moved += len(held - self._held.get(name, set()))
            self._held[name] = held
