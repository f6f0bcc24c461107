"""Reports of a training: which losses can be used, and which iterations they belong to."""

from __future__ import annotations

import math
from typing import Any

from dask_slaq.core.errors import NonFiniteLoss

#: Larger losses count as infinite, so that the difference of two losses cannot overflow.
MAX_LOSS = 1e300
#: Successive reports without a usable loss after which a training is said to diverge. Loss scaling
#: in half precision begins with a few infinite ones.
LOST = 8
#: Minimum weight of the newest distance between two usable reports in their running mean.
NEWEST = 0.2


def is_usable(loss: float) -> bool:
    """Return whether a loss is finite and not too large. Others only count as an iteration."""
    return -MAX_LOSS <= loss <= MAX_LOSS


def as_loss(loss: Any) -> float:
    """Convert a loss to a float, also one that is not usable.

    Raises `NonFiniteLoss` for what is not a number, such as a text or a boolean.
    """
    if not isinstance(loss, str | bytes | bool):
        try:
            return float(loss)
        except OverflowError:
            return math.inf
        except (TypeError, ValueError):
            pass
    raise NonFiniteLoss(f"a loss must be a number, not {loss!r}")


def next_iteration(last: int, step: Any = None) -> int:
    """Return the iteration of a report after that of iteration `last`.

    It is `step` if that is a larger whole number, else the next one.
    """
    known = isinstance(step, int) and last < step <= 10**12
    return step if known else last + 1


def next_stride(stride: float, gaps: int, gap: int) -> float:
    """Return the mean iterations from one usable report to the next after one more `gap`.

    `gaps` counts this one, and `stride` is the mean before it. It is exactly 1 if every iteration
    is reported.
    """
    return stride + max(1.0 / gaps, NEWEST) * (gap - stride)
