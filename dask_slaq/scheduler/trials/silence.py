"""Models that have made no report for long: they are told, and on request their worker restarts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.core.trials import Trial, Trials

__all__ = ["SilentTrials"]

logger = logging.getLogger(__name__)

#: Seconds between two looks at what still computes on a worker that will be restarted.
LOOK = 0.2
#: Seconds between two looks beyond which the scheduler was blocked.
BLOCKED = 3.0
#: Seconds that other tasks have to leave such a worker, at least.
PATIENCE = 10.0


class SilentTrials:
    """Silent models of all searches. `tell` is called with the name of a search and a message."""

    def __init__(self, scheduler: Scheduler, tell: Callable[[str, str], object]) -> None:
        self._scheduler, self._tell = scheduler, tell
        self._restarting: dict[str, asyncio.Task[None]] = {}  # by address of the worker

    def look(self, name: str, trials: Trials, now: float, since: float) -> None:
        """Tell which models of a search have become silent, and restart their workers.

        The last look was `since` seconds ago.
        """
        settings = trials.settings
        if since > BLOCKED:  # what they have sent meanwhile was not read yet
            for trial in trials.alive.values():
                trial.heard += since
        for trial in trials.find_silent(now):
            seconds, pace = now - trial.heard, trial.computed / max(trial.reports, 1)
            message = (
                f"model {trial.key} has made no report for {seconds:.0f} s on {trial.worker}, "
                f"where one took {pace:.3g} s: its thread is no longer counted on"
            )
            if trials.staying:
                message += "; it may need a lock that a model holds which waits in its report"
            if settings.restart_silent:
                message += f"; {self._restart(trial, seconds)}"
            logger.warning("search %s: %s", name, message)
            self._tell(name, message)

    def _restart(self, trial: Trial, seconds: float) -> str:
        """Begin to restart the worker of a model. Returns what happens, in words."""
        ws = self._scheduler.workers.get(trial.worker)
        if ws is None or not ws.nanny:
            return "its worker has no nanny that could restart it"
        if not any(other is not ws for other in self._scheduler.running):
            return "its worker is not restarted, as no other one could take what it has"
        if ws.address not in self._restarting:
            task = asyncio.ensure_future(self._empty_and_restart(ws, trial.key, seconds))
            self._restarting[ws.address] = task
            task.add_done_callback(lambda _: self._restarting.pop(ws.address, None))
        return "its worker is restarted once other models have left"

    async def _empty_and_restart(self, ws: WorkerState, key: Hashable, seconds: float) -> None:
        scheduler, until = self._scheduler, monotonic() + max(seconds, PATIENCE)
        try:
            # Models that may leave do so now, results and states are copied, and nothing begins.
            emptied: Any = scheduler.retire_workers([ws.address], close_workers=False, remove=False)
            await asyncio.wait([asyncio.ensure_future(emptied)], timeout=until - monotonic())
            while monotonic() < until and any(
                ts.key != key and (ts in ws.executing or ts in ws.long_running)
                for ts in ws.processing  # others wait for a thread that does not come
            ):
                await asyncio.sleep(LOOK)
            if scheduler.workers.get(ws.address) is ws and ws.nanny:
                reason = f"model {key} is silent"
                await scheduler.rpc(ws.nanny).kill(reason=reason)  # which starts another process
        except Exception:
            logger.exception("%s was not restarted, where model %s is silent", ws.address, key)
