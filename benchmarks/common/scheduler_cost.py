"""CPU time that a scheduler spends on tasks: their graph, their runs, and forgetting them."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time
from typing import Any

from distributed import Scheduler

from benchmarks.common.protocol_workers import Steps

#: What Dask's scheduler does for tasks: it takes a graph, hears of their ends, and forgets them.
METHODS = ("_create_taskstate_from_graph", "handle_task_finished", "client_releases_keys")


class SchedulerCost:
    """Context manager that times the scheduler's work on tasks, in CPU time of this thread.

    `seconds` are those of Dask's handlers, hooks of plugins included, of all that `dask_slaq` put
    on the event loop, and of the epochs that it `run`s. `dispatches` counts those of the plugin,
    and `empty` those that sent nothing.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler, self._steps = scheduler, Steps()
        self._handled = 0.0
        self._depth = 0
        self.seconds = 0.0
        self.dispatches = self.empty = 0

    def __enter__(self) -> SchedulerCost:
        for name in METHODS:
            setattr(self._scheduler, name, self._timed(getattr(self._scheduler, name)))
        if (slaq := self._scheduler.plugins.get("slaq")) is not None:
            slaq.pools.dispatch = self._counted(slaq.pools.dispatch, slaq.pools.bindings)
        self._steps.__enter__()
        return self

    def run(self, epoch: Callable[[], object]) -> None:
        """Run an epoch."""
        self._timed(epoch)()

    def _timed(self, method: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin, self._depth = thread_time(), self._depth + 1
            try:
                return method(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._handled += thread_time() - begin

        return timed

    def _counted(self, dispatch: Any, bindings: Any) -> Any:
        def counted() -> None:
            before = bindings[-1] if bindings else None
            dispatch()
            self.dispatches += 1
            self.empty += (bindings[-1] if bindings else None) is before

        return counted

    def __exit__(self, *exc: object) -> None:
        self._steps.__exit__(*exc)
        for name in METHODS:
            delattr(self._scheduler, name)
        if (slaq := self._scheduler.plugins.get("slaq")) is not None:
            del slaq.pools.dispatch
        self.seconds = self._handled + self._steps.ours
