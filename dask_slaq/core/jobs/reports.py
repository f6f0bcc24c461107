"""Reports of a training: which losses can be used, and which iterations they belong to."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from dask_slaq.core.errors import InvalidSetting, NonFiniteLoss
from dask_slaq.core.settings import MOST_ITERATIONS, require
from dask_slaq.core.text import printable

#: Larger losses count as infinite, so that the difference of two losses cannot overflow.
MAX_LOSS = 1e300
#: Successive reports without a usable loss after which a training is said to diverge. Loss scaling
#: in half precision begins with a few infinite ones.
LOST_REPORTS = 8


def is_usable(loss: float) -> bool:
    """Return whether a loss is finite and not too large. Others only count as an iteration."""
    return -MAX_LOSS <= loss <= MAX_LOSS


def as_loss(loss: Any) -> float:
    """Convert a loss to a float, also one that is not usable. Raises `NonFiniteLoss`."""
    if not isinstance(loss, str | bytes | bool):
        try:
            return float(loss)
        except OverflowError:
            return math.inf
        except (TypeError, ValueError):
            pass
    raise NonFiniteLoss(f"a loss must be a number, not {loss!r}")


def next_iteration(last: int, step: Any = None) -> int:
    """Return the iteration after `last`: `step` if that is larger and whole, else the next."""
    known = isinstance(step, int) and last < step <= MOST_ITERATIONS
    return step if known else last + 1


def next_stride(stride: float, gaps: int, gap: int) -> float:
    """Return the mean iterations between usable reports after one more `gap`, the `gaps`-th."""
    return stride + max(1.0 / gaps, 0.2) * (gap - stride)


#: Maximum number of losses in a message of a task.
MOST_LOSSES = 1000
#: Maximum number of metrics besides the loss, and of characters of their names.
MOST_METRICS, MOST_METRIC_CHARACTERS = 8, 100


def as_metrics(given: Any, loss: str = "") -> dict[str, float]:
    """Return metrics by name, of which the first one is the loss. A number is just the loss.

    It is the one with the name of the `loss`, if that is known; without it there are none. At most
    `MOST_METRICS` further ones are kept, if they are numbers. Raises as `as_loss` does, and
    `InvalidSetting` for an empty mapping.
    """
    if not isinstance(given, Mapping):
        return {loss or "loss": as_loss(given)}
    if not given:
        raise InvalidSetting("report needs a loss, or metrics of which the first is the loss")
    named = {printable(name)[:MOST_METRIC_CHARACTERS]: value for name, value in given.items()}
    if loss:
        if loss not in named:
            return {}
        named = {loss: named[loss], **named}
    found = {}
    for name, value in list(named.items())[: 1 + MOST_METRICS]:
        try:
            found[name] = as_loss(value)
        except NonFiniteLoss:
            if not found:
                raise NonFiniteLoss(f"metric {name!r} must be a number, not {value!r}") from None
    return found


def as_metric(name: Any) -> str | None:
    """Convert the name of the metric that is the loss; None without. Raises `InvalidSetting`."""
    if name is None or (isinstance(name, str) and 0 < len(name) <= MOST_METRIC_CHARACTERS):
        return None if name is None else printable(name)
    raise InvalidSetting(
        f"metric must be a name of at most {MOST_METRIC_CHARACTERS} characters, not {name!r}"
    )


#: What is said once of reports without the loss.
NO_LOSS = (
    "a report without the metric %r was dropped: that is the loss, by the first report or by "
    "metric= of the block; it has %s"
)


def as_step(step: Any) -> int | None:
    """Convert a step to an int; None if there is none. Raises `InvalidSetting`."""
    if step is None:
        return None
    try:
        number = -1 if isinstance(step, bool) else index(step)
    except TypeError:
        number = -1
    require("step", step, 0 <= number <= MOST_ITERATIONS, "a whole number from 0 to 1e12")
    return number


@dataclass(slots=True)
class Iterations:
    """Numbers of the iterations of one training, by the steps that its reports name.

    Steps that begin at 0 are counted from 1. A step that is not above the last one counts as the
    next iteration, but the first one begins a new training, and so does 0 after some without one.
    """

    last: int = 0
    gap: int = 1  # from the report before
    named: bool = False  # whether any report named its step
    repeated: bool = False  # whether a step was not above the last one
    curve: int = 0  # trainings before it that the same model began
    _base: int | None = None  # added to a step
    _first: int | None = None  # step that was named first
    _latest: int | None = None

    def goes_back(self, step: int | None) -> bool:
        """Return whether a step is the first one again, after others."""
        if self._base is None:
            return step == 0 and self.last > 1
        return step is not None and step == self._first != self._latest

    def count(self, step: int | None = None) -> int:
        """Count a report. Returns the number of its iteration."""
        if step is not None:
            self.named = True
            if self._base is None:
                self._base, self._first = int(step == 0), step
            self._latest = step
            step += self._base
            self.repeated = self.repeated or step <= self.last
        before, self.last = self.last, next_iteration(self.last, step)
        self.gap = self.last - before
        return self.last
