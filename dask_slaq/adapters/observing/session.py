"""Open ``instrument`` blocks of a context, and warnings that are issued once per cause."""

from __future__ import annotations

import logging
import math
import threading
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from numbers import Integral
from typing import Any
from weakref import WeakKeyDictionary

from dask_slaq.core.errors import StopTraining

logger = logging.getLogger(__name__)


class ReportSession:
    """Open ``instrument`` block.

    Parameters
    ----------
    report : callable
        Called as ``report(loss)`` with the loss of one iteration, a float.
    outer : ReportSession or None
        Enclosing block.
    expect : callable, optional
        Called as ``expect(n)`` when a fit begins, with its maximum number of reports.
    describe : callable, optional
        Called as ``describe(kind)`` when a fit begins; see `kinds.kind_of`.

    Attributes
    ----------
    open : bool
        False after the block was left. A context copied inside the block may outlive it.
    why_stopped : str or None
        What `StopTraining` says, once a report has raised it or the job was asked to stop.
    said : set of str
        Causes that this block has warned about.
    """

    def __init__(
        self,
        report: Callable[[float], None],
        outer: ReportSession | None,
        expect: Callable[[int], None] | None = None,
        describe: Callable[[Mapping[str, Any]], None] | None = None,
    ) -> None:
        self.report = report
        self.outer = outer
        self.expect = expect
        self.describe = describe
        self.open = True
        self.why_stopped: str | None = None
        self._ends: WeakKeyDictionary[Any, Callable[[Any, str], None]] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self.said: set[str] = set()

    def stop(self, why: str) -> None:
        """End the fits in this block: each at its next report, and none begins.

        Parameters
        ----------
        why : str
            What `StopTraining` says.
        """
        with self._lock:
            self.why_stopped = self.why_stopped or why
            ends = list(self._ends.items())
        for what, end in ends:
            end(what, why)

    def when_stopped(self, what: Any, end: Callable[[Any, str], None]) -> None:
        """Call ``end(what, why)`` when the block is stopped, now if it is already.

        Parameters
        ----------
        what : object
            Something that trains without reports; the block keeps no reference to it.
        end : callable
            The same for each call with `what`. It may be called several times.
        """
        with self._lock:
            self._ends[what] = end
        if self.why_stopped is not None:
            end(what, self.why_stopped)


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
    describe: Callable[[Mapping[str, Any]], None] | None = None,
) -> Iterator[ReportSession]:
    """Open a block in this context.

    Parameters
    ----------
    report, expect, describe : callable
        See `ReportSession`.

    Yields
    ------
    ReportSession
    """
    block = ReportSession(report, current(), expect, describe)
    token = _innermost.set(block)
    try:
        yield block
    finally:
        block.open = False
        # Raised if the block is left in another context. `open` is False there, too.
        with suppress(ValueError):
            _innermost.reset(token)


_said: set[str] = set()


def warn_once(cause: str, message: str, said: set[str] = _said) -> None:
    """Issue a RuntimeWarning the first time that `cause` occurs; never raise.

    If the user's filters turn the warning into an error, it is logged instead, so that it does not
    end the fit.

    Parameters
    ----------
    cause : str
        Key that identifies the cause.
    message : str
        Text of the warning.
    said : set of str, optional
        Causes that have been warned about; `cause` is added. By default those of this process.
    """
    if cause in said:
        return
    said.add(cause)
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        logger.warning(message)


def log_once(block: ReportSession, cause: str, message: str) -> None:
    """Log `message` the first time that `cause` occurs in a block.

    Parameters
    ----------
    block : ReportSession
    cause : str
        Key that identifies the cause.
    message : str
        Text of the line.
    """
    if cause not in block.said:
        block.said.add(cause)
        logger.warning(message)


def log_stop(block: ReportSession, library: str) -> None:
    """Log once per block and library that a stopped fit ends with the model so far.

    Parameters
    ----------
    block : ReportSession
    library : str
        Name of the library or module whose fit ends.
    """
    message = f"the job was stopped: the fit of {library} ends with the model so far"
    log_once(block, f"stop {library}", message)


def publish(loss: float, *, trial: Hashable = None) -> bool:
    """Report `loss` to the innermost open block, or else to the search of this task.

    For training loops and callbacks of this package, which report like the observed loops of other
    libraries. In a task of a search, the call waits while other models gain more. Elsewhere,
    without a block, it does nothing.

    Parameters
    ----------
    loss : float
        Lower is better.
    trial : hashable, optional
        Which of the trials in the task reports; see `dask_slaq.worker.report_trial`.

    Returns
    -------
    bool
        False if the training was stopped or pruned: end it with the model so far.

    Raises
    ------
    distributed.Reschedule
        The task was cancelled. Nothing else is raised.
    """
    block = current()
    if block is None:
        return _publish_in_task(loss, trial)
    if pass_on(block, loss):
        return True
    log_once(block, "stop", "the job was stopped: its fit ends with the model so far")
    return False


def _publish_in_task(loss: float, trial: Hashable) -> bool:
    from distributed import Reschedule

    from dask_slaq.worker import report_trial

    try:
        report_trial(loss, trial=trial)
    except StopTraining:
        return False
    except Reschedule:
        raise
    except Exception as error:
        name = type(error).__name__
        warn_once(name, f"a loss was not reported: {name}: {error}")
    return True


def is_heard() -> bool:
    """Return whether `publish` reports to something, which makes a loss worth computing."""
    from dask_slaq.worker import in_trial

    return current() is not None or in_trial()


def open_blocks() -> Iterator[ReportSession]:
    """Yield the blocks that are open in this context, the innermost first."""
    block = current()
    while block is not None:
        if block.open:
            yield block
        block = block.outer


def stopped() -> bool:
    """Return whether fits in one of the open blocks were stopped."""
    return any(block.why_stopped is not None for block in open_blocks())


def check_not_stopped() -> None:
    """Raise `StopTraining` if `stopped`. Call it where a fit begins."""
    for block in open_blocks():
        if block.why_stopped is not None:
            raise StopTraining(block.why_stopped)


def expect(iterations: object) -> None:
    """Begin a fit: pass its maximum number of iterations to the innermost open block.

    Parameters
    ----------
    iterations : object
        Maximum number of iterations; ignored unless it is a positive integer. The block receives
        one more, because the loss of the starting point is reported too.

    Raises
    ------
    StopTraining
        The block was stopped before. Nothing else is raised.
    """
    check_not_stopped()
    block = current()
    if block is None or block.expect is None or not isinstance(iterations, Integral):
        return
    if iterations < 1:
        return
    try:
        block.expect(int(iterations) + 1)
    except Exception as error:
        name = type(error).__name__
        warn_once(name, f"the number of iterations was not told: {name}: {error}", block.said)


def pass_on(block: ReportSession, loss: float) -> bool:
    """Report a loss to a block; never raise.

    A loss that is not finite is dropped. Any failure gives one warning per cause and block.

    Returns
    -------
    bool
        False if the report raised `StopTraining`.
    """
    if not math.isfinite(loss):
        warn_once("not finite", f"a loss of {loss} was not reported", block.said)
        return True
    try:
        block.report(float(loss))
    except StopTraining as stop:
        block.stop(str(stop))
        return False
    except Exception as error:
        name = type(error).__name__
        warn_once(name, f"a loss was not reported: {name}: {error}", block.said)
    return True
