"""Contention: whether several jobs have tasks, so that tasks are held."""

from __future__ import annotations

from time import monotonic

#: Minimum number of seconds for which tasks are still held after all other jobs have ended.
LINGER = 10.0


class Contention:
    """Decides how long tasks are held.

    When one job is left alone, its tasks are held for as long again as there was contention, and
    at least `linger` seconds: its data lies unevenly, where slots were free, and Dask would send
    its tasks after the data.
    """

    def __init__(self) -> None:
        self.linger = LINGER
        self._since = self._hold_until = 0.0

    def lasts(self, jobs: int, holding: bool) -> bool:
        """Return whether there are several jobs, or were until recently.

        Parameters
        ----------
        jobs : int
            Number of jobs with a pool.
        holding : bool
            Whether tasks are held now.
        """
        now = monotonic()
        if jobs > 1:
            if not holding:
                self._since = now
            self._hold_until = now + max(now - self._since, self.linger)
            return True
        return holding and jobs == 1 and now < self._hold_until
