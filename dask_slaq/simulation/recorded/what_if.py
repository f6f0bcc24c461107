"""Replay of a log (``dask slaq replay``), and simulation of its jobs under other policies.

The replay checks that decisions are reproduced. The simulated jobs have the losses that were
reported and, per report, the core-seconds and overhead of tasks and the seconds without tasks.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.recording import VERSION, Replay
from dask_slaq.simulation.fluid import Outcome
from dask_slaq.simulation.metrics import Run, summarize
from dask_slaq.simulation.recorded.log_reader import (
    LogError,
    RecordedJob,
    Recording,
    read,
)
from dask_slaq.simulation.study import Settings, check_policy, run
from dask_slaq.simulation.workload import SimulatedJob

#: Name of the measured figures, alongside the names of policies.
RECORDED = "recorded"
#: Most epochs of a simulated recording: many times what a log of the largest size holds.
MOST_EPOCHS = 10_000_000
#: Work of an iteration without tasks, relative to the mean.
LEAST = 1e-6


def replay_log(
    path: str | Path,
    policies: Sequence[str] = ("fair", "max-total"),
) -> dict[str, Any]:
    """Replay a log, and simulate its last recording with jobs under several policies.

    `path` is the newest file of the log. The policy of the recording is always simulated, for
    comparison with the recorded figures.

    Returns the keys of the JSON output. Of the replay: the numbers ``decisions``, ``reproduced``
    and ``skipped``; ``why`` decisions were skipped; the first ``difference``; ``said``, a summary
    in words; ``notes``. Of the simulation, unless no job can be simulated: ``policy`` of the
    recording; ``policies``, figures by name with `RECORDED` first, see `metrics.summarize`;
    ``overhead``, the fraction of the work that is not compute of tasks; ``settings``. Raises
    `LogError` or `UnknownPolicy`.
    """
    for name in policies:
        check_policy(name)
    decisions = Replay()
    recordings, notes = read(path, decisions)
    found: dict[str, Any] = {
        "decisions": decisions.decisions,
        "reproduced": decisions.reproduced,
        "skipped": decisions.skipped,
        "why": decisions.why,
        "difference": decisions.difference and asdict(decisions.difference),
        "said": _said(decisions),
        "notes": notes,
    }
    if decisions.version < VERSION:
        notes.append(
            f"the log is of version {decisions.version}, and this release writes {VERSION}: it may "
            "decide otherwise than the one that recorded it"
        )
    with_jobs = [(one, jobs) for one in recordings if (jobs := _usable(one))]
    if not with_jobs:
        notes.append("no job reported twice and had tasks: there is nothing to simulate")
        return found
    if len(recordings) > 1:
        notes.append(f"of {len(recordings)} recordings, the last one with jobs is simulated")
    recording, jobs = with_jobs[-1]
    notes += _left_out(recording, jobs)
    lasted = max(job.times[-1] for job in jobs) - jobs[0].arrival
    if lasted > MOST_EPOCHS * recording.start["epoch"]:
        notes.append(f"{lasted:g} s are more than {MOST_EPOCHS} epochs: too many to simulate")
        return found
    try:
        return {**found, **_what_if(recording, jobs, policies)}
    except SlaqError as error:  # from settings in the log that no engine accepts
        raise LogError(f"{path}: {error}") from error


def _said(decisions: Replay) -> str:
    words = f"{decisions.reproduced} of {decisions.decisions} decisions reproduced"
    if decisions.difference is not None:
        words += f"; {decisions.difference}"
    if decisions.skipped:
        words += f"; {decisions.skipped} could not be replayed: {decisions.why}"
    return words


def _usable(recording: Recording) -> list[RecordedJob]:
    if not recording.threads:  # nothing was decided
        return []
    return [j for j in recording.jobs if j.reports and len(j.times) > 1 and sum(j.work) > 0]


def _left_out(recording: Recording, jobs: Sequence[RecordedJob]) -> list[str]:
    """Return notes on jobs that are not simulated, or not to their end."""
    why: Counter[str] = Counter()
    for job in recording.jobs:
        if not job.reports:
            why["unowned tasks of clients"] += 1
        elif len(job.times) < 2:
            why["of fewer than two reports"] += 1
        elif not sum(job.work) > 0:
            why["without tasks"] += 1
    why["that came before the log begins"] = len(recording.unknown)
    notes = ["left out: " + ", ".join(f"{n} {what}" for what, n in why.items() if n)]
    if lost := sum(job.outcome == "lost" for job in jobs):
        notes.append(f"jobs that were lost, which end with their last report: {lost}")
    open_ = sum(job.left is None for job in jobs)
    if open_:
        notes.append(f"{open_} jobs had not ended: they end with their last report")
    return [note for note in notes if not note.endswith(": ")]


def _what_if(
    recording: Recording,
    recorded: Sequence[RecordedJob],
    policies: Sequence[str],
) -> dict[str, Any]:
    begun = recorded[0].arrival
    jobs = simulated_jobs(recorded)
    settings = _settings(recording, jobs, begun)
    own = recording.start["policy"]
    names = list(dict.fromkeys([own, *policies, "fair"]))
    compute = sum(sum(job.work) for job in recorded)
    busy = sum(job.total for job in jobs)
    runs = {name: [run(name, 0, jobs, settings)] for name in names}
    times = [np.array(job.times) - begun for job in recorded]
    real = [Run(0, jobs, Outcome(times, busy=busy, moved=recording.moved))]
    cores = settings.cores
    figures = {RECORDED: summarize(real, runs["fair"], cores, settings.capacity)}
    figures[RECORDED]["decisions"] = recording.decisions
    for name in dict.fromkeys([own, *policies]):
        figures[name] = summarize(runs[name], runs["fair"], cores, settings.capacity)
    return {
        "policy": own,
        "overhead": 1.0 - compute / busy,
        "policies": figures,
        "settings": asdict(settings),
    }


def _settings(recording: Recording, jobs: Sequence[SimulatedJob], begun: float) -> Settings:
    """Return the settings of the recorded cluster, with times counted from `begun`."""
    before = [threads for time, threads in recording.threads if time <= begun]
    after = [(time - begun, threads) for time, threads in recording.threads if time > begun]
    cores = before[-1] if before else after.pop(0)[1]
    start = recording.start
    return Settings(
        jobs=len(jobs),
        cores=cores,
        interarrival=jobs[-1].arrival / max(len(jobs) - 1, 1),
        seeds=1,
        capacity=tuple(after),
        dispatch="index",
        epoch=start["epoch"],
        floor=start["floor"],
        latest=math.inf if start.get("latest") is None else start["latest"],
        normalizer=start["normalizer"],
    )


def simulated_jobs(recorded: Sequence[RecordedJob]) -> list[SimulatedJob]:
    """Make simulated jobs of recorded ones, in the same order.

    The first job arrives at 0. Repeated names get a suffix: ``name#2`` and so on.
    """
    seen: Counter[str] = Counter()
    made = []
    for job in recorded:
        seen[job.name] += 1
        loss, compute, idle = np.array(job.losses), np.array(job.work), np.array(job.idle)
        work = compute + np.array(job.overhead[: len(loss)])
        part = np.maximum(work / work.mean(), LEAST)
        made.append(
            SimulatedJob(
                name=job.name if seen[job.name] == 1 else f"{job.name}#{seen[job.name]}",
                curve=job.name,
                arrival=job.arrival - recorded[0].arrival,
                loss=loss,
                reports=loss,
                work=float(work.mean()),
                partitions=job.most if job.most >= 1 else math.inf,
                slowdown=part * (len(part) / part.sum()),
                alone=idle if idle.any() else None,
                charged=float(compute.sum() / work.sum()),
                **job.settings,
            )
        )
    return made
