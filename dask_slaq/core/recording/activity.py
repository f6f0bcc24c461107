"""Interface of the optional measurements that a recording includes."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Activity"]


class Activity(Protocol):
    """Measurements of tasks that a recording includes but that do not affect decisions.

    `add` and `remove` are called when a job arrives and when it ends. Every `now` is in seconds on
    the clock of the recorder.
    """

    def add(self, job: str, now: float) -> None:
        """Begin to measure a job. `now` is in seconds."""
        ...

    def remove(self, job: str, now: float) -> None:
        """Forget a job that ends. `now` is in seconds."""
        ...

    def idle(self, job: str, now: float) -> float:
        """Return the seconds since the last call in which a job had no task ready or running.

        Parameters
        ----------
        job : str
        now : float
            Seconds.
        """
        ...

    def offered(self, threads: int, now: float) -> float:
        """Return the thread-seconds since the last call for which there were tasks.

        Parameters
        ----------
        threads : int
            Threads of all workers.
        now : float
            Seconds.
        """
        ...
