"""Blocks in which the fits of supported libraries report their loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from dask_slaq.adapters import dask_glm, dask_ml, joblib, lightgbm, repairs, xgboost
from dask_slaq.adapters.observing import Patches, ReportSession
from dask_slaq.adapters.observing import session as blocks

LOOPS = (
    *dask_glm.LOOPS,
    *dask_ml.LOOPS,
    *joblib.LOOPS,
    *lightgbm.LOOPS,
    *xgboost.LOOPS,
)
_patches = Patches(LOOPS)


@contextmanager
def instrument(report: Callable[[float], None] | None = None) -> Iterator[None]:
    """Make supported training loops report their loss while the block is open.

    A fit gives the same result as without the block and never fails because of it. Only what the
    thread (or `contextvars` context) calls that opened the block reports, to the innermost block.
    See ``docs/adapters.md`` for what each library reports.

    Parameters
    ----------
    report : callable, optional
        Called as ``report(loss)`` with a finite float, once for the loss of the starting point,
        where it is known, then once per iteration. By default the reports go to the job that is
        open here. If it raises `StopTraining`, the fit ends with the model so far; if anything
        else, there is one warning, and the fit goes on unobserved.

    Raises
    ------
    TypeError, InvalidSetting
        `report` is not callable; the value of ``slaq.repairs`` is invalid.

    Examples
    --------
    >>> from dask_slaq import instrument
    >>> losses = []
    >>> with instrument(losses.append):
    ...     LogisticRegression(solver="lbfgs").fit(X, y)  # doctest: +SKIP
    """
    if report is None:
        report = _report_to_job
    elif not callable(report):
        raise TypeError(f"report must be callable, not {report!r}")
    else:
        report = blocks.finite_only(report)
    with observe_fits(report):
        yield


@contextmanager
def observe_fits(report: Callable[[float], None], **more: Any) -> Iterator[ReportSession]:
    """Open a block like `instrument`, and also pass on the length and the kind of each fit.

    When a fit begins, it calls ``expect(n)`` with the fit's maximum number of reports, and
    ``describe(kind)`` with what `dask_slaq.core.run_history.read_kind` reads, if these are given.
    """
    with repairs.while_open(), _patches, blocks.opened(report, **more) as block:
        yield block


@contextmanager
def end_calls() -> Iterator[ReportSession]:
    """Open a block whose calls of joblib raise `StopTraining` once it is stopped.

    Losses of fits in it go to the block around it.
    """
    with _patches, blocks.opened(lambda loss: None, hears=False) as block:
        yield block


def loop_states() -> dict[str, str]:
    """Return whether each supported loop is observed now, or why not, by its full name."""
    return _patches.states()


def _report_to_job(loss: float) -> None:
    from dask_slaq.client import training

    training.report(loss)
