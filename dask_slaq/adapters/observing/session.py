"""Open ``instrument`` blocks of a context, and warnings that are issued once per cause."""

from __future__ import annotations

import logging
import math
import threading
import uuid
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any
from weakref import WeakKeyDictionary

from dask_slaq.core.errors import StopTraining, TrialPruned
from dask_slaq.core.jobs.reports import as_loss

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class ReportSession:
    """Open ``instrument`` block: where the losses, lengths, kinds and steps of its fits go.

    `open` is False after the block was left; a context copied inside the block may outlive it.
    One that does not hear leaves the losses to the block around it, and only ends calls.
    `why_stopped` is what `StopTraining` says, once a report has raised it or the job was stopped.
    """

    report: Callable[..., None]
    expect: Callable[[int], None] | None = None
    describe: Callable[[Mapping[str, Any]], None] | None = None
    hears: bool = True
    outer: ReportSession | None = None
    open: bool = True
    why_stopped: str | None = None
    warned: set[str] = field(default_factory=set)  # causes that this block has warned about
    _ends: WeakKeyDictionary[Any, Callable[[Any, str], None]] = field(
        default_factory=WeakKeyDictionary
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def stop(self, why: str) -> None:
        """End the fits in this block: each at its next report, and none begins."""
        with self._lock:
            self.why_stopped = self.why_stopped or why
            ends = list(self._ends.items())
        for what, end in ends:
            end(what, why)

    def when_stopped(self, what: Any, end: Callable[[Any, str], None]) -> None:
        """Call ``end(what, why)``, maybe several times, once the block is stopped.

        `what` trains without reports; the block keeps no reference to it.
        """
        with self._lock:
            self._ends[what] = end
        if self.why_stopped is not None:
            end(what, self.why_stopped)


_innermost: ContextVar[ReportSession | None] = ContextVar("slaq_instrument", default=None)


def open_blocks() -> Iterator[ReportSession]:
    """Yield the blocks that are open in this context, the innermost first."""
    block = _innermost.get()
    while block is not None:
        if block.open:
            yield block
        block = block.outer


def current() -> ReportSession | None:
    """Return the innermost block that is open in this context, and hears."""
    return next((block for block in open_blocks() if block.hears), None)


@contextmanager
def opened(report: Callable[[float], None], **more: Any) -> Iterator[ReportSession]:
    """Open a block in this context. See `dask_slaq.adapters.observe_fits`."""
    block = ReportSession(report, outer=next(open_blocks(), None), **more)
    token = _innermost.set(block)
    try:
        yield block
    finally:
        block.open = False
        # Raised if the block is left in another context. `open` is False there, too.
        with suppress(ValueError):
            _innermost.reset(token)


_warned: set[str] = set()


def warn_once(cause: str, message: str, warned: set[str] = _warned) -> None:
    """Issue a RuntimeWarning the first time that `cause` occurs in a block or process; never raise.

    If the user's filters turn the warning into an error, it is logged instead, so that it does not
    end the fit.
    """
    if cause in warned:
        return
    warned.add(cause)
    try:
        warnings.warn(message, RuntimeWarning, stacklevel=3)
    except RuntimeWarning:
        logger.warning(message)


def warn_of(error: Exception, message: str, warned: set[str] = _warned) -> None:
    """Issue a warning with the name and text of `error`, once per class of errors."""
    name = type(error).__name__
    warn_once(name, f"{message}: {name}: {error}", warned)


def log_once(block: ReportSession, cause: str, message: str) -> None:
    """Log `message` the first time that `cause` occurs in a block."""
    if cause not in block.warned:
        block.warned.add(cause)
        logger.warning(message)


def log_stop(block: ReportSession, library: str) -> None:
    """Log once per block and library that a stopped fit ends with the model so far."""
    message = f"the job was stopped: the fit of {library} ends with the model so far"
    log_once(block, f"stop {library}", message)


def value_of(value: Any) -> float:
    """Return a loss as a library logs it: of a tuple, such as mean and deviation, the first one.

    Raises `NonFiniteLoss`.
    """
    return as_loss(value[0] if isinstance(value, tuple | list) and value else value)


def publish(
    loss: Any,
    *,
    trial: Hashable = None,
    step: int | None = None,
    params: Callable[[], Mapping[str, Any]] | None = None,
    state: Any = None,
) -> bool:
    """Report `loss` to the innermost open block, or else to the search of this task.

    For training loops and callbacks of this package. In a task of a search, the call waits while
    other models gain more; `trial` says which of the trials in the task reports, `step` the
    iteration, from 1, if not every one is reported, and `params` returns those of its model. A
    block does not count it: its fits may follow one another. With a `state` of `Training.keeping`
    the model may leave its worker here. Returns False if the training was stopped or pruned: end it
    with the model so far. Raises nothing but `TrialPruned` in a fit of scikit-learn's
    cross-validation, and `distributed.Reschedule` if the task was cancelled or leaves its worker.
    """
    try:
        loss = value_of(loss)
    except Exception as error:
        warn_of(error, "a loss was not reported")
        return True
    if (block := current()) is not None:
        if pass_on(block, loss):
            return True
        log_once(block, "stop", "the job was stopped: its fit ends with the model so far")
        return False
    from distributed import Reschedule

    from dask_slaq.worker import part_of_cross_validation, report_trial

    try:
        more = {} if state is None else {"state": state}
        report_trial(loss, trial=trial, step=step, params=params, **more)
    except StopTraining as end:
        if isinstance(end, TrialPruned) and part_of_cross_validation() is not None:
            raise  # else the score of what was cut short would count in a mean
        return False
    except Reschedule:
        raise
    except Exception as error:
        warn_of(error, "a loss was not reported")
    return True


def begin_trial(kind: str, *, keeps: bool = True) -> tuple[Hashable, Any, Any]:
    """Begin a trial. Returns its name, its training and the last state, which may be large.

    The training is None unless it `keeps` states, and the state is None from the start; see
    `dask_slaq.worker.begin_training`.
    """
    from dask_slaq.worker import begin_training

    trial = uuid.uuid4().hex[:8]
    training = begin_training(kind, trial) if keeps and current() is None else None
    if training is None:
        return trial, None, None
    return training.trial, training._replace(state=None), training.state


def is_heard() -> bool:
    """Return whether `publish` reports to something, which makes a loss worth computing."""
    from dask_slaq.worker import in_trial

    return current() is not None or in_trial()


def stopped() -> bool:
    """Return whether fits in one of the open blocks were stopped."""
    return any(block.why_stopped is not None for block in open_blocks())


def check_not_stopped() -> None:
    """Raise `StopTraining` if `stopped`. Call it where a fit begins."""
    for block in open_blocks():
        if block.why_stopped is not None:
            raise StopTraining(block.why_stopped)


def expect(iterations: object) -> None:
    """Begin a fit: pass its maximum number of iterations, if it has one, to the open block.

    The block receives one more, because the loss of the starting point is reported too. Raises
    nothing but `StopTraining`, if the block was stopped before.
    """
    check_not_stopped()
    if isinstance(iterations, Integral) and int(iterations) >= 1:
        _tell("expect", int(iterations) + 1, "the number of iterations was not told")


def _tell(what: str, value: Any, failed: str) -> None:
    """Tell the open block something, if it wants to know; never raise."""
    block = current()
    if block is None or (call := getattr(block, what)) is None:
        return
    try:
        call(value)
    except Exception as error:
        warn_of(error, failed, block.warned)


def finite_only(report: Callable[[float], None]) -> Callable[[float], None]:
    """Return a function that drops losses that are not finite, with one warning."""
    warned: set[str] = set()

    def report_finite(loss: float) -> None:
        if math.isfinite(loss):
            report(loss)
        else:
            warn_once("not finite", f"a loss of {loss} was not reported", warned)

    return report_finite


def pass_on(block: ReportSession, loss: float, step: int | None = None) -> bool:
    """Report a loss to a block; never raise. Returns False if the report raised `StopTraining`.

    Any failure gives one warning per cause and block.
    """
    try:
        block.report(float(loss), *(() if step is None else (step,)))
    except StopTraining as stop:
        block.stop(str(stop))
        return False
    except Exception as error:
        warn_of(error, "a loss was not reported", block.warned)
    return True


#: Parameters of estimators that shape their loss curves: choices, and numbers.
CHOICES = (
    *("loss", "penalty", "solver", "learning_rate", "activation", "kernel", "init", "algorithm"),
    *("module", "criterion", "optimizer", "hidden_layer_sizes"),
)
NUMBERS = (
    *("C", "alpha", "l1_ratio", "eta0", "lr", "learning_rate", "learning_rate_init", "momentum"),
    *("lamduh", "rho", "batch_size", "n_clusters", "n_components", "degree", "gamma"),
    *("max_depth", "max_leaf_nodes", "l2_regularization", "subsample", "power_t"),
)


def describe(kind: Mapping[str, Any]) -> None:
    """Pass the kind of a fit that begins, see `kind_of`, to the innermost block; never raise."""
    _tell("describe", kind, "the kind of a fit was not told")


def kind_of(
    fit: str, choices: Iterable[object] = (), numbers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a kind as `dask_slaq.core.run_history.read_kind` takes it.

    `fit` names library and estimator, such as ``"dask_glm.admm"``. Choices other than strings,
    classes and tuples of numbers are left out, and so are numbers that are not finite and >= 0.
    """
    known = (text for choice in choices if (text := _text_of(choice)))
    return {**numbers_in(numbers or {}), "name": "/".join([fit, *known])[:256]}


def sizes_of(data: Any) -> dict[str, float]:
    """Return the ``rows``, ``columns`` and ``chunks`` (of rows) of data, as far as known."""
    found: dict[str, Any] = {}
    try:
        shape: Any = getattr(data, "shape", ())
        found["rows"] = shape[0] if len(shape) else None
        found["columns"] = (shape[1] if len(shape) == 2 else 1) if len(shape) else None
        blocks = getattr(data, "numblocks", None) or (getattr(data, "npartitions", None),)
        found["chunks"] = blocks[0]
    except Exception:  # data of a kind of its own
        pass
    return numbers_in(found)


def kind_of_estimator(fit: str, model: Any, data: Any = None) -> dict[str, Any]:
    """Return the kind of the fit of an estimator: its class, parameters and size of the data.

    Of an estimator without scikit-learn's ``get_params`` only the class is known.
    """
    try:
        params = model.get_params(deep=False)
    except Exception:
        params = {}
    choices = [params[name] for name in CHOICES if name in params]
    numbers = {name: params[name] for name in NUMBERS if name in params}
    return kind_of(fit, (type(model), *choices), {**sizes_of(data), **numbers})


def describe_estimator(fit: str, model: Any, data: Any = None) -> None:
    """Pass the kind of the fit of an estimator to the open block. See `kind_of_estimator`."""
    if current() is not None:
        describe(kind_of_estimator(fit, model, data))


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers >= 0 among values; booleans are not numbers."""
    found = {}
    for name, value in values.items():
        value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
        if not isinstance(value, bool) and isinstance(value, Real):
            number = float(value)
            if math.isfinite(number) and number >= 0:
                found[name] = number
    return found


def _text_of(choice: object, longest: int = 40) -> str | None:
    if isinstance(choice, str):
        return choice[:longest]
    if isinstance(choice, type):
        return choice.__name__[:longest]
    if isinstance(choice, tuple) and all(isinstance(part, int) for part in choice):
        return "x".join(map(str, choice))[:longest]
    return None
