"""What makes the training loops of unmodified libraries report their loss.

`instrument` opens a block; every loop in `LOOPS` that runs inside it reports once an iteration.
One file a library: a new one declares its loops and is added to `LOOPS`. None of them imports
its library. Which loops report, and which number, is in ``docs/adapters.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dask_slaq.adapters import dask_glm, lightgbm, xgboost
from dask_slaq.adapters.compat import repairs
from dask_slaq.adapters.dask_ml import incremental, searches
from dask_slaq.adapters.dask_ml import kmeans as dask_ml
from dask_slaq.adapters.observing import Patches
from dask_slaq.adapters.observing import session as blocks

__all__ = ["instrument"]

LOOPS = (
    *dask_glm.LOOPS,
    *dask_ml.LOOPS,
    *incremental.LOOPS,
    *lightgbm.LOOPS,
    *searches.LOOPS,
    *xgboost.LOOPS,
)
_patches = Patches(LOOPS)


@contextmanager
def instrument(report: Callable[[float], None] | None = None) -> Iterator[None]:
    """Make supported training loops report their loss while the block is open.

    The block holds for the thread (more exactly: the `contextvars` context) that opened it; the
    same loops run untouched in every other thread. Of nested blocks the innermost gets the reports.

    Parameters
    ----------
    report : callable, optional
        Called as ``report(loss)`` with a Python float, in the thread that called ``fit``: once for
        the loss of the starting point, then once an iteration. By default the reports go to the
        job that is open in this context (`dask_slaq.report`).

    Raises
    ------
    TypeError
        `report` is not callable.
    InvalidSetting
        ``slaq.repairs`` is not as it should be.

    Notes
    -----
    A fit gives the same result as without the block, and never fails because of it: when a report
    raises, or a library is not as it was when its adapter was written, there is one warning and
    the loop goes on unobserved.

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
    with observing(report):
        yield


@contextmanager
def observing(
    report: Callable[[float], None],
    expect: Callable[[int], None] | None = None,
) -> Iterator[None]:
    """Do what `instrument` does, for a job that is told how many iterations to `expect`."""
    repairs.follow_settings()
    with _patches, blocks.opened(report, expect):
        yield


def loop_states() -> dict[str, str]:
    """For each supported loop whether it is observed now, or why not."""
    return _patches.states()


def _report_to_job(loss: float) -> None:
    import dask_slaq

    dask_slaq.report(loss)
