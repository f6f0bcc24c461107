"""Trainings in background threads, several at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import current_client
from dask_slaq.client.job import Job, job
from dask_slaq.core.errors import StopTraining

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["TrainingFuture", "submit"]


class TrainingFuture(Future[Any]):
    """Future of a training that runs in a thread of its own.

    Attributes
    ----------
    job : Job
        The job; `Job.pause`, `Job.set` and so on work while it runs.
    """

    def __init__(self, job: Job) -> None:
        super().__init__()
        self.job = job
        self._cancel_asked = False

    def cancel(self) -> bool:
        """Cancel the training: its next report raises `StopTraining` in the function.

        Returns
        -------
        bool
            Whether it had not ended yet.
        """
        if self.done():
            return False
        self._cancel_asked = True  # opening the job clears what was asked of it before
        self.job.ask_to_stop()
        return True

    def __repr__(self) -> str:
        return f"<TrainingFuture of job {self.job.name!r}: {self._state.lower()}>"


def submit(
    function: Callable[..., Any],
    *args: Any,
    name: str,
    client: Client | None = None,
    settings: dict[str, Any] | None = None,
    **kwargs: Any,
) -> TrainingFuture:
    """Run a function as a job in a background thread, and return its future at once.

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
        at its next report.

    Raises
    ------
    InvalidSetting, NoPlugin
        The job cannot be created, or there is no client.

    Examples
    --------
    >>> futures = [
    ...     submit(KMeans(k).fit, X, name=f"kmeans-{k}") for k in (2, 4, 8)
    ... ]  # doctest: +SKIP
    >>> models = [future.result() for future in futures]  # doctest: +SKIP
    """
    client = current_client(client)
    mine = {key: kwargs.pop(key) for key in SETTINGS if key in kwargs}
    block = job(name, client=client, **mine, **(settings or {}))
    future = TrainingFuture(block)
    thread = threading.Thread(
        target=_run, args=(future, client, function, args, kwargs), name=f"slaq-{name}", daemon=True
    )
    future.set_running_or_notify_cancel()
    thread.start()
    return future


#: Settings of `job` that `submit` takes from its keyword arguments.
SETTINGS = (
    *("weight", "min_share", "max_share", "resources", "target", "max_iter", "gang"),
    *("target_kind", "by", "stop", "kind", "owner"),
)


def _run(
    future: TrainingFuture,
    client: Client,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> None:
    try:
        with client.as_current(), future.job:
            if future._cancel_asked:
                raise StopTraining(f"job {future.job.name!r} was stopped before it began")
            result = function(*args, **kwargs)
    except StopTraining as stopped:
        error = CancelledError(str(stopped))
        error.__cause__ = stopped
        future.set_exception(error)
    except BaseException as error:
        future.set_exception(error)
    else:
        future.set_result(result)
