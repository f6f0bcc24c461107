"""Steps of a scikit-learn ``Pipeline`` as stages of the job in which it is fitted.

The final step of a pipeline and those before it run in ``_print_elapsed_time``, right after the
pipeline made the message of the step: in every release since 0.21, whether it prints or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from types import FunctionType
from typing import Any

from dask_slaq.adapters.observing import Loop, stage

#: Name of the step that is about to begin.
_next: ContextVar[str | None] = ContextVar("slaq_step", default=None)


class StepName(Loop):
    """Method of a pipeline that makes the message of the step that comes next."""

    def replacement(self, function: FunctionType) -> Callable[..., Any]:
        """Return a replacement that keeps the name of the step."""

        def make_message(pipeline: Any, step_idx: int, *args: Any) -> Any:
            _next.set(_name_of(pipeline, step_idx))
            return function(pipeline, step_idx, *args)

        return make_message


class StepRun(Loop):
    """Context manager in which a step is fitted."""

    def replacement(self, function: FunctionType) -> Callable[..., Any]:
        """Return a replacement that is a stage, too, if the name of a step was made for it."""

        def run_step(source: Any, *args: Any, **kwargs: Any) -> AbstractContextManager[None]:
            name = _next.get()
            timer: AbstractContextManager[None] = function(source, *args, **kwargs)
            if name is None or source != "Pipeline":
                return timer
            _next.set(None)
            return _both(name, timer)

        return run_step


@contextmanager
def _both(name: str, timer: AbstractContextManager[None]) -> Iterator[None]:
    with stage(name), timer:
        yield


def _name_of(pipeline: Any, step_idx: int) -> str | None:
    """Return the name of a step; None for something that only resembles a pipeline."""
    try:
        name = pipeline.steps[step_idx][0]
    except Exception:
        return None
    return name if isinstance(name, str) else None


LOOPS = (
    StepName("sklearn.pipeline", "Pipeline._log_message"),
    StepRun("sklearn.pipeline", "_print_elapsed_time"),
)
