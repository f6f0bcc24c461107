"""Advice from recorded runs: which intermediate results to keep in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.persisting import advise
from dask_slaq.core.recording import Replay
from dask_slaq.simulation.recorded import RecordedJob, part_of, read, size

__all__ = ["advise_persisting"]

#: First version of logs that record what was recomputed.
SINCE = 9


def advise_persisting(
    logs: Sequence[str | Path],
    memory_limit: float | None = None,
    *,
    without: Collection[str] = (),
    progress: Callable[[str, int, int], object] | None = None,
) -> dict[str, Any]:
    """Choose the results to persist in each recorded job that computed some more than once.

    Of each of the `logs` the newest file is given. `memory_limit` is the bytes that the choice for
    a job may take, by default 60 % of the memory of the recorded workers, above which Dask spills.
    Layers of which a name is in `without` (see `core.persisting.names_of`) are not chosen: those
    that are inside a library. `progress` is called as by `advise`.

    Returns the keys of the JSON output. ``jobs``: a dict per job with ``job``, ``memory_limit``,
    ``seconds`` (core-seconds of all repeats), ``saves`` (those that the choice saves), ``bytes``
    (of the choice) and ``layers``: those of the event ``recomputed``, with ``saves`` (core-seconds,
    if it alone is persisted; most first) and ``persist``; ``notes`` on the logs. Raises `LogError`
    if a log cannot be read, and `InvalidSetting` if the logs do not have what is needed.
    """
    told = part_of(progress, "Reading", sum(map(size, logs)))
    notes: list[str] = []
    jobs: list[RecordedJob] = []
    old = []
    for path in logs:
        recordings, found = read(path, Replay(), told)
        notes += [f"{path}: {note}" for note in found]
        jobs += [job for one in recordings for job in one.jobs if job.reports]
        if all(one.start["version"] < SINCE for one in recordings):
            old.append(str(path))
    advice = [advise(job.recomputed, memory_limit, without) for job in jobs if job.recomputed]
    if old:
        says = f"{', '.join(old)}: recorded by a release that did not count repeated results"
        if not advice:
            raise InvalidSetting(f"{says}: record it again")
        notes.append(says)
    if jobs and (count := len(jobs) - len(advice)):
        notes.append(f"{count} of {len(jobs)} jobs computed nothing more than once.")
    return {"jobs": advice, "notes": notes}
