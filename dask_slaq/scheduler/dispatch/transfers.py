"""Estimates of when inputs that must be moved arrive on a worker."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

__all__ = ["Transfers"]

#: Inputs that move in less than these seconds are not recorded.
QUICK = 0.001
#: Maximum number of records before those of the past are dropped.
MOST = 10_000


class Transfers:
    """Inputs on their way between workers.

    A worker is taken to send, and to receive, one large input at a time: what several tasks need
    of one worker arrives one after the other, and what is on its way arrives only once.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        # Times at which the last transfers end, by address.
        self._receives: dict[str, float] = {}
        self._sends: dict[str, float] = {}
        # Time of arrival and the sender, by key and address.
        self._arrives: dict[tuple[Any, str], tuple[float, str]] = {}

    def arrive_in(self, ts: TaskState, ws: WorkerState) -> tuple[float, bool]:
        """Return the seconds until a worker would have all inputs of a task that is sent now.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        ws : distributed.scheduler.WorkerState

        Returns
        -------
        seconds : float
        at_once : bool
            Whether none of the inputs has to wait for another transfer.
        """
        now = latest = monotonic()
        end, at_once = self._receives.get(ws.address, now), True
        for dep in ts.dependencies:
            if ws in (dep.who_has or ()):
                continue
            arrival, _ = self._arrives.get((dep.key, ws.address), (now, ""))
            if arrival <= now:
                begin = max(end, self._free_at(dep, now), now)
                at_once = at_once and begin <= now
                end = arrival = begin + dep.nbytes / self._scheduler.bandwidth
            latest = max(latest, arrival)
        return latest - now, at_once

    def sent(self, ts: TaskState, ws: WorkerState) -> None:
        """Record that the task `ts` was sent to the worker `ws`, which fetches what it lacks."""
        now = monotonic()
        for dep in ts.dependencies:
            seconds = dep.nbytes / self._scheduler.bandwidth
            if seconds < QUICK or ws in (dep.who_has or ()):
                continue
            if self._arrives.get((dep.key, ws.address), (now, ""))[0] > now:
                continue
            end = max(now, self._receives.get(ws.address, now), self._free_at(dep, now)) + seconds
            sender = self._sender(dep, now) if dep.who_has else ""
            self._arrives[dep.key, ws.address] = end, sender
            self._receives[ws.address] = self._sends[sender] = end
        if len(self._arrives) > MOST:
            self._arrives = {key: at for key, at in self._arrives.items() if at[0] > now}
            self._sends = {address: end for address, end in self._sends.items() if end > now}
            self._receives = {address: end for address, end in self._receives.items() if end > now}

    def ended(self, ts: TaskState, address: str) -> None:
        """Record that a task left a worker: what it fetched has arrived, perhaps early.

        Parameters
        ----------
        ts : distributed.scheduler.TaskState
        address : str
            Address of the worker.
        """
        now = monotonic()
        for dep in ts.dependencies:
            arrival, sender = self._arrives.pop((dep.key, address), (now, ""))
            if arrival > now:
                for ends, at in ((self._receives, address), (self._sends, sender)):
                    ends[at] = min(ends.get(at, now), max(ends.get(at, now) - (arrival - now), now))

    def _free_at(self, dep: TaskState, now: float) -> float:
        """Return the time at which a worker that has an input may send it."""
        return self._sends.get(self._sender(dep, now), now) if dep.who_has else now

    def _sender(self, dep: TaskState, now: float) -> str:
        """Return the address of the worker that may send an input first."""
        have = (ws.address for ws in dep.who_has or ())
        return min(have, key=lambda address: self._sends.get(address, now))
