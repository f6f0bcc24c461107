"""Coverage of the expected ends of jobs: how often the stated 80 % band holds the real end.

Jobs of four owners run on Dask's own scheduler on the virtual clock, and their status is read at
any time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from benchmarks.common.results import give, json_option, seeds_options
from benchmarks.live_jobs.fit_ends import Noted
from benchmarks.live_jobs.owned import COUNT, LOAD, Watched, make_owned_jobs, run_owned
from benchmarks.virtual import latency_option

#: Fifths of a job, by the part of its work that was done.
FIFTHS = ("0-20", "20-40", "40-60", "60-80", "80-100")
#: Factor by which an end is wrong, and seconds below which that does not count: an epoch.
WRONG, EPOCH = 4.0, 1.0


def figures(runs: Sequence[tuple[Watched, Watched]], seed: int = 0) -> dict[str, Any]:
    """Return how true the shown ends are, in runs under a policy and of the same jobs under `fair`.

    A job is looked at once in each fifth of its work, at any moment. By fifth, ``band`` is the
    share of ends in their 80 % band, ``answers`` their number, and ``shown`` the share of looks
    at which an end was shown. ``four_times`` is the share of ends that were wrong by more than
    `WRONG`, and ``width`` the median quotient of the ends of a band. ``promise_kept`` is the share
    of promises that were kept, as stated when a fifth of the work was done.
    ``first_report_worst`` is the longest wait for a first report over that under `fair`.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[tuple[float, dict[str, Any]]]] = {fifth: [] for fifth in FIFTHS}
    shown: dict[str, list[bool]] = {fifth: [] for fifth in FIFTHS}
    before, kept, waits = [], [], []
    for run, fair in runs:
        for name, looks in run.looks.items():
            for i, fifth in enumerate(FIFTHS):
                here = [look for look in looks if min(int(5 * look[1]), 4) == i]
                if not here:
                    continue
                at, _, reported, ends = here[rng.integers(len(here))]
                known = ends is not None and ends["expected"] is not None
                shown[fifth].append(known)
                if known:
                    found[fifth].append((run.ended[name] - at, ends))
                    if not reported and name in run.first:
                        before.append(found[fifth][-1])
            stated = next((look for look in looks if look[1] >= 0.2), None)
            if stated is not None and stated[3] is not None and stated[3]["promised"] is not None:
                kept.append(run.ended[name] - stated[0] <= stated[3]["promised"] + EPOCH)
        for name, first in run.first.items():
            wait = fair.first[name] - fair.came[name]
            waits.append((first - run.came[name]) / max(wait, EPOCH))
    every = [one for fifth in FIFTHS for one in found[fifth]]
    wrong = [_is_wrong(real, ends["expected"]) for real, ends in every]
    return {
        "band": {fifth: _within(found[fifth]) for fifth in FIFTHS},
        "four_times": float(np.mean(wrong)),
        "promise_kept": float(np.mean(kept)),
        "first_report_worst": max(waits, default=math.nan),
        "answers": {fifth: len(found[fifth]) for fifth in FIFTHS},
        "shown": {fifth: float(np.mean(shown[fifth])) for fifth in FIFTHS},
        "before_first_report": {"answers": len(before), "band": _within(before)},
        "inside": _within(every),
        "width": float(np.median([ends["high"] / ends["low"] for _, ends in every])),
    }


def _within(found: Sequence[tuple[float, dict[str, Any]]]) -> float | None:
    """Return the share of ends in their band; None without any."""
    if not found:
        return None
    return float(np.mean([ends["low"] <= real <= ends["high"] for real, ends in found]))


def _is_wrong(real: float, expected: float) -> bool:
    """Return whether an end differs by more than a factor of `WRONG`."""
    low, high = sorted((max(real, EPOCH), max(expected, EPOCH)))
    return high > WRONG * low


@click.command()
@click.option("--policy", default="first-to-target", show_default=True)
@seeds_options
@click.option("--live", is_flag=True, help="On Dask's scheduler, as always.")
@click.option("--owners", is_flag=True, help="Jobs of four owners, of all shapes, as always.")
@click.option("--load", default=LOAD, show_default=True, help="Share of the threads wanted.")
@click.option("--fit", is_flag=True, help="Give the constants that these ends would have chosen.")
@click.option("--quick", is_flag=True, help="One seed of few jobs.")
@latency_option
@json_option
def main(
    policy: str,
    seeds: int,
    seed: int,
    live: bool,
    owners: bool,
    load: float,
    fit: bool,
    quick: bool,
    output: str | None,
) -> None:
    """Measure how often the 80 % band of the expected end holds the real one."""
    runs: list[tuple[Watched, Watched]] = []
    noted = Noted()
    for each in range(seed, seed + (1 if quick else seeds)):
        jobs = make_owned_jobs(each, 10 if quick else COUNT, load)
        with noted:
            run = run_owned(jobs, policy, each)
        if not fit:
            runs.append((run, run_owned(jobs, "fair", each)))
        if output != "-":
            click.echo(f"seeds until {each}: {noted.constants() if fit else figures(runs)}")
    give(noted.constants() if fit else figures(runs), output)


if __name__ == "__main__":
    main()
