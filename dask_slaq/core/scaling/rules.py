"""Rules of scaling: how many workers a cluster is to have, of all numbers whose costs are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dask_slaq.core.errors import BROKEN
from dask_slaq.core.scaling.worth import Worth


class ScalingRule(Protocol):
    """Chooses the number of workers of a cluster. It may remember what it was asked before.

    Whatever it chooses is kept within the minimum and the maximum of ``slaq.scaling``, and what is
    no longer chosen stays for as long as it would cost to get it again.
    """

    def __call__(self, worth: Worth, here: int) -> int | None:
        """Return how many workers there are to be, or None for what the default says.

        Parameters
        ----------
        worth : Worth
            What the jobs still need, as ``worth.demand`` with arrays (n_jobs,): `work` in
            core-seconds, the threads `width` that each can use, its `weight`, and what an hour of
            its time is `worth`. For 0, 1, 2, ... workers, ``worth.end`` (n_workers + 1, n_jobs) has
            the seconds until each job ends, and ``worth.paid`` (n_workers + 1,) the seconds of all
            workers until none is of use. A worker has ``worth.threads``, and costs ``worth.price``
            per second.
        here : int
            Number of workers that the cluster has.
        """
        ...


class GuardedRule:
    """Rule of somebody else, which leaves the number to the default once it breaks.

    `tell` is called with the reason, once.
    """

    def __init__(self, rule: ScalingRule, tell: Callable[[str], object]) -> None:
        self._rule, self._tell = rule, tell
        self.broken: str | None = None

    def __call__(self, worth: Worth, here: int) -> int | None:
        """Return what the rule says if that is a number of workers. See `ScalingRule`."""
        if self.broken is None:
            try:
                found = self._rule(worth, here)
                if found is None:
                    return None
                if isinstance(found, bool) or int(found) != found or found < 0:
                    raise ValueError(f"{found!r} is not a number of workers")
                return int(found)
            except BROKEN as error:
                self.broken = f"{type(error).__name__}: {error}"
                self._tell(self.broken)
        return None
