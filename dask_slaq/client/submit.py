"""Trainings in background threads, several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

from distributed import Client

from dask_slaq.client.block import Result, Training, running_job
from dask_slaq.client.blocks import job
from dask_slaq.client.connection import current_client
from dask_slaq.client.job_block import Job
from dask_slaq.core.errors import StopTraining
from dask_slaq.core.jobs.settings import JOB_SETTINGS


class TrainingFuture(Training[Result]):
    """Future of a training that runs in a thread of its own.

    Attributes
    ----------
    job : Job
        The job; `Job.pause`, `Job.set` and so on work while it runs.
    """

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job: Job = job
        self._begun = threading.Event()  # its job was opened, or could not be
        self._lock = threading.Lock()
        self._cancel_asked = False
        self._ended = False
        self._cause: BaseException | None = None

    def cancel(self) -> bool:
        """Cancel the training: its next report raises `StopTraining` in the function.

        The future is cancelled from now on, whatever the function returns or raises; it is done
        when the function has ended. To keep the model so far, use ``future.job.stop()``.

        Returns
        -------
        bool
            Whether the future is cancelled. It is not if the function had ended already.
        """
        with self._lock:
            if self._ended:
                return self.cancelled()
            self._cancel_asked = True  # opening the job clears what was asked of it before
        self.job._ask_to_stop()
        return True

    def cancelled(self) -> bool:
        """Return whether it was cancelled, or its function ended with `StopTraining`."""
        return self._cancel_asked or super().cancelled()

    def running(self) -> bool:
        """Return whether the function has not ended yet."""
        return not self.done()

    def result(self, timeout: float | None = None) -> Result:
        """Return what the function returned, or raise what it raised; see `Future.result`."""
        try:
            return super().result(timeout)
        except CancelledError:
            self._raise_cancelled()
            raise

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return what the function raised, or None; see `Future.exception`."""
        try:
            return super().exception(timeout)
        except CancelledError:
            self._raise_cancelled()
            raise

    def _raise_cancelled(self) -> None:
        if super().cancelled():
            raise CancelledError(f"job {self.job.name!r} was stopped") from self._cause

    def _end(self, result: Result | None = None, error: BaseException | None = None) -> None:
        """End with the result or error of the function."""
        with self._lock:
            self._ended = True
        if self._cancel_asked or isinstance(error, StopTraining):
            self._cause = error
            super().cancel()
            self.set_running_or_notify_cancel()
        elif error is not None:
            self.set_exception(error)
        else:
            self.set_result(result)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        states = {"running": self.running(), "cancelled": self.cancelled(), "finished": True}
        state = next(state for state, holds in states.items() if holds)
        return f"<TrainingFuture of job {self.job.name!r}: {state}>"


def submit(
    function: Callable[..., Result],
    *args: Any,
    name: str,
    client: Client | None = None,
    settings: dict[str, Any] | None = None,
    **kwargs: Any,
) -> TrainingFuture[Result]:
    """Run a function as a job in a background thread, and return its future at once.

    In the block of a `search` it is one of the search's models.

    Parameters
    ----------
    function : callable
        Trains a model. Dask collections that it computes belong to the job; it may call `report`.
    *args
        Passed to the function.
    name : str
        Name of the job, unique among the jobs running on the scheduler.
    client : distributed.Client, optional
        Defaults to the current client; it must not be asynchronous.
    settings : dict, optional
        More settings of `job` whose names are also arguments of the function.
    **kwargs
        Settings of `job`, such as ``weight=2``; all others are passed to the function.

    Returns
    -------
    TrainingFuture
        ``result()`` waits for the function, and raises its error. ``cancel()`` ends the training
        at its next report, and its result is lost; ``job.stop()`` keeps it.

    Raises
    ------
    InvalidSetting, NoPlugin
        The job cannot be created, or there is no client.

    Examples
    --------
    >>> future = submit(KMeans(8).fit, X, name="kmeans-8")  # doctest: +SKIP
    >>> model = future.result()  # doctest: +SKIP
    """
    client = current_client(client)
    mine = {key: kwargs.pop(key) for key in JOB_SETTINGS if key in kwargs}
    block = job(name, client=client, **mine, **(settings or {}))
    block.in_background = True
    future = TrainingFuture[Result](block)
    if (around := running_job.get()) is not None:
        around._know_model(future, function, args, kwargs)
    thread = threading.Thread(
        target=_run, args=(future, client, function, args, kwargs), name=f"slaq-{name}", daemon=True
    )
    thread.start()
    return future


def _run(
    future: TrainingFuture[Result],
    client: Client,
    function: Callable[..., Result],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        with client.as_current(), future.job:
            future._begun.set()
            if future._cancel_asked:
                raise StopTraining(f"job {future.job.name!r} was stopped before it began")
            result = function(*args, **kwargs)
    except BaseException as error:
        future._end(error=error)
    else:
        future._end(result)
    finally:
        future._begun.set()
