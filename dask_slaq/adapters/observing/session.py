"""The blocks that are open in this context, and the one warning that trouble costs."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from numbers import Integral

logger = logging.getLogger(__name__)


class ReportSession:
    """One open ``instrument`` block.

    Attributes
    ----------
    report : callable
        Takes the loss of one iteration.
    outer : Block or None
        The block around this one.
    expect : callable or None
        Told how many losses the fit that begins will report at most.
    open : bool
        False once the block was left: a context copied inside it may outlive it.
    said : set of str
        Causes that this block has warned about.
    """

    def __init__(
        self,
        report: Callable[[float], None],
        outer: ReportSession | None,
        expect: Callable[[int], None] | None = None,
    ) -> None:
        self.report = report
        self.outer = outer
        self.expect = expect
        self.open = True
        self.said: set[str] = set()


_innermost: ContextVar[ReportSession | None] = ContextVar("slaq_instrument", default=None)


def current() -> ReportSession | None:
    """Return the innermost block that is open in this context."""
    block = _innermost.get()
    while block is not None and not block.open:
        block = block.outer
    return block


@contextmanager
def opened(
    report: Callable[[float], None],
    expect: Callable[[int], None] | None = None,
) -> Iterator[ReportSession]:
    """Open a block in this context."""
    block = ReportSession(report, current(), expect)
    token = _innermost.set(block)
    try:
        yield block
    finally:
        block.open = False
        # Left in another context than it was entered in: `open` says enough.
        with suppress(ValueError):
            _innermost.reset(token)


_said: set[str] = set()


def warn_once(cause: str, message: str, said: set[str] = _said) -> None:
    """Warn about `cause` unless it is among those `said`, by default in this process; never raise.

    A warning that the user's filters turn into an error must not end a fit either: it is logged.
    """
    if cause in said:
        return
    said.add(cause)
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        logger.warning(message)


def publish(loss: float) -> None:
    """Report `loss` to the innermost open block, if there is one; never raise.

    For training loops of our own: they report like those of other libraries do.
    """
    block = current()
    if block is not None:
        pass_on(block, loss)


def expect(iterations: object) -> None:
    """Tell the innermost open block that a fit of at most so many iterations begins; never raise.

    What is no number of iterations tells nothing.
    """
    block = current()
    if block is None or block.expect is None or not isinstance(iterations, Integral):
        return
    if iterations < 1:
        return
    try:
        # The loss of the starting point is reported too.
        block.expect(int(iterations) + 1)
    except Exception as error:
        name = type(error).__name__
        warn_once(name, f"the number of iterations was not told: {name}: {error}", block.said)


def pass_on(block: ReportSession, loss: float) -> None:
    """Report `loss` to `block`; never raise."""
    if not math.isfinite(loss):
        warn_once("not finite", f"a loss of {loss} was not reported", block.said)
        return
    try:
        block.report(float(loss))
    except Exception as error:
        name = type(error).__name__
        warn_once(name, f"a loss was not reported: {name}: {error}", block.said)
