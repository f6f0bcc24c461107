"""Comparison of one scenario under plain Dask and under policies."""

from __future__ import annotations

import math

from benchmarks.never_worse.laws import Finding, check
from benchmarks.never_worse.running import run
from benchmarks.never_worse.scenarios import make_scenario

__all__ = ["compare"]


def compare(
    seed: int, policies: tuple[str, ...], bandwidth: float = math.inf
) -> list[tuple[int, str, Finding]]:
    """Run one scenario under plain Dask and under each policy, and check the laws.

    Parameters
    ----------
    seed : int
        Seed of the scenario.
    policies : tuple of str
    bandwidth : float
        Bytes per second that a worker sends.

    Returns
    -------
    list of (seed, policy, Finding)
    """
    scenario = make_scenario(seed)
    plain = run(scenario, "none", bandwidth)
    found = []
    for policy in policies:
        ours = run(scenario, policy, bandwidth)
        found += [(seed, policy, finding) for finding in check(scenario, policy, plain, ours)]
    return found
