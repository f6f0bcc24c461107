"""Switch between held tasks and plain Dask, in steps that do not block the scheduler."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.scheduler.pools.task_control import TaskControl

#: Number of tasks converted together, maximum number of conversions per step of the event loop,
#: and seconds after which a step ends. The clock may be virtual and stand still within a step.
TOGETHER, TIMES, STEP = 50, 10, 0.010


class Holding:
    """Switch for holding, with the queues of the tasks still to be converted.

    Parameters
    ----------
    control : TaskControl
    user_of : callable
        Returns the worker restrictions that the user gave a task.
    fail : callable
        Called with the error if a step fails.

    Attributes
    ----------
    on : bool
        Whether tasks should be held.
    """

    def __init__(
        self,
        control: TaskControl,
        user_of: Callable[[TaskState], Any],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.control = control
        self.on = False
        self._user_of = user_of
        self._fail = fail
        self._to_convert: deque[TaskState] = deque()
        self._to_give_back: deque[tuple[TaskState, Any]] = deque()
        self._handle: asyncio.Handle | None = None

    def __bool__(self) -> bool:
        """Whether tasks should be held, or are still to be converted."""
        return self.on or len(self) > 0

    def __len__(self) -> int:
        """Return the number of tasks still to be converted."""
        return len(self._to_convert) + len(self._to_give_back)

    @property
    def to_give_back(self) -> set[TaskState]:
        """Tasks of removed pools that are still to be given back to Dask."""
        return {ts for ts, _ in self._to_give_back}

    def switch(self, on: bool, tasks: Collection[TaskState]) -> None:
        """Turn holding on or off. The first tasks are converted before this returns.

        Parameters
        ----------
        on : bool
            Whether to hold tasks from now on.
        tasks : collection of distributed.scheduler.TaskState
            Tasks to hold, or to give back to Dask.
        """
        self.on = on
        self._to_convert = deque(tasks)
        self._step()

    def convert(self, tasks: Iterable[TaskState]) -> None:
        """Hold further tasks that Dask already tracks, while holding is on."""
        self._to_convert.extend(tasks)
        self._step()

    def give_back(self, tasks: dict[TaskState, Any]) -> None:
        """Give tasks of a removed pool back to Dask.

        Parameters
        ----------
        tasks : dict of distributed.scheduler.TaskState to set of str or None
            Tasks with the worker restrictions that the user gave each.
        """
        self._to_give_back.extend(tasks.items())
        self._step()

    def _step(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        begin = perf_counter()
        try:
            for _ in range(TIMES):
                if not len(self) or perf_counter() - begin > STEP:
                    break
                self._convert()
        except Exception as error:
            self._fail(error)
        if len(self) and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._step)

    def _convert(self) -> None:
        back = dict(_take(self._to_give_back))
        tasks = _take(self._to_convert)
        if not self.on:
            back.update((ts, self._user_of(ts)) for ts in tasks)
        self.control.give_back(back)
        if not self.on:
            return
        for ts in tasks:
            if ts.state == "waiting":
                self.control.hold(ts, self._user_of(ts))
        self.control.take_out_of_queue(tasks)


def _take(queue: deque[Any]) -> list[Any]:
    return [queue.popleft() for _ in range(min(TOGETHER, len(queue)))]
