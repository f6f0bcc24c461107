"""Block of a job: annotates the tasks submitted inside it, and queues its losses.

`report` queues a loss on the client's stream to the scheduler and returns in microseconds.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dask

from dask_slaq.adapters import observe_fits
from dask_slaq.adapters.observing import Mailbox, Reporter, ReportSession
from dask_slaq.client.block import Block, Result, running_job
from dask_slaq.client.changes import change, pause, stop, unpause
from dask_slaq.client.connection import request
from dask_slaq.client.live import Status
from dask_slaq.client.queries import status
from dask_slaq.client.training import Arguments
from dask_slaq.core.errors import StopTraining, UnknownJob
from dask_slaq.core.jobs.reports import NO_LOSS, Iterations, as_loss, as_metrics, as_step, is_usable
from dask_slaq.core.run_history import check_kind
from dask_slaq.core.settings import shown

if TYPE_CHECKING:
    from distributed import Client
    from typing_extensions import Self


class Losses:
    """Losses of one job, whose first metric is the loss unless one is named by `metric`.

    Several threads may report at once. `iterations` and `reports` are those of the present block.
    What is reported is a score if it `negates`: minus it is the loss.
    """

    def __init__(self, job: str, metric: str) -> None:
        self._job, self._named, self._metric = job, metric, metric
        self._lock = threading.RLock()
        self._warned: set[str] = set()  # causes that this block has warned about
        self.negates = False
        self.begin()

    def begin(self) -> None:
        """Count from the beginning of a block."""
        self.iterations, self.reports = Iterations(), 0
        self.latest, self._lowest, self._rises = math.nan, math.nan, True
        self._warned.clear()

    def loss_of(self, given: float | Mapping[str, float], step: int | None) -> float | None:
        """Return the loss among reported metrics; None, with a warning, if it is not there."""
        if self.iterations.goes_back(step):
            self._metric = self._named
        metrics = as_metrics(given, self._metric)
        if not metrics:
            self._warn_once(NO_LOSS % (self._metric, ", ".join(map(shown, given))))  # type: ignore[arg-type]
            return None
        name, value = next(iter(metrics.items()))
        if isinstance(given, Mapping):
            self._metric = self._metric or name
        return -value if self.negates else value

    def report(self, loss: float, step: int | None, say: Callable[..., bool]) -> float:
        """Count a loss that `say` sends to the scheduler, if that could be queued. Returns it."""
        loss, step = as_loss(loss), as_step(step)
        with self._lock:
            anew = self.iterations.goes_back(step)
            self._follow(loss, anew=anew)
            iterations = Iterations() if anew else replace(self.iterations)
            iteration = iterations.count(step)
            more = ({} if step is None else {"step": iteration}) | ({"anew": True} if anew else {})
            if say("slaq-report", loss=loss, **more):
                self.iterations, self.reports = iterations, self.reports + 1
        if not is_usable(loss):
            self._warn_once(f"a loss of {loss} was dropped: only its iteration counts")
        if iterations.repeated:
            self._warn_once("a step was not above the last one: it counts as the next iteration")
        return loss

    def _follow(self, loss: float, *, anew: bool, most: int = 20) -> None:
        """Follow whether the first loss is the lowest, as of scores that are reported as losses.

        There is a warning after so many reports at `most`.
        """
        self._lowest = self._lowest if self.reports else loss
        self._rises = self._rises and not anew and is_usable(loss) and loss >= self._lowest
        self.latest = loss
        if self._rises and loss > self._lowest and self.reports + 1 >= most and not self.negates:
            self._warn_once(
                f"its loss has only risen in {self.reports + 1} reports: a loss is lower for "
                "better models; report a score with a minus"
            )

    def _warn_once(self, why: str) -> None:
        cause = why.partition(":")[2]
        with self._lock:
            new = cause not in self._warned
            self._warned.add(cause)
        if new:
            logger.warning("job %s: %s", self._job, why)


logger = logging.getLogger(__name__)


class Job(Block):
    """Training run on a cluster, used as a ``with`` or ``async with`` block.

    Create it with `job`, which documents the parameters.

    Attributes
    ----------
    name : str
    iteration : int
        Iterations reported since the block was entered: the last step, or the number of reports.
    """

    #: Whether fits of supported libraries in its block report to it.
    _observes = True

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        client: Client | None,
        more: Mapping[str, Any] = MappingProxyType({}),
        metric: str = "",
    ) -> None:
        super().__init__(name, settings, client, more)
        self._lock = threading.RLock()  # around what several threads may call at once
        self._losses = Losses(name, metric)
        self.in_background = False  # whether `submit` runs it in a thread of its own
        self._fits = 0
        self._described = self._asynchronous = False
        # Receives what tasks report; made on demand, once per block.
        self._session: ReportSession | None = None
        self._mailbox: Mailbox | None = None

    @property
    def iteration(self) -> int:
        """Iterations reported since the block was entered."""
        return self._losses.iterations.last

    def report(
        self, loss: float | Mapping[str, float], step: int | None = None, *, state: Any = None
    ) -> None:
        """Report the loss of an iteration without blocking.

        Lower is better, unless it is a model of a search that maximizes.

        Parameters
        ----------
        loss : float or Mapping
            Any value that ``float()`` converts, except strings, bytes and booleans, or metrics by
            name; see `dask_slaq.report`.
        step : int, optional
            As of `dask_slaq.report`. One that is not above the last counts as the next, with one
            warning; but the first one begins the training again.
        state : optional
            Not kept: only a model that is one task of a search goes on from its state.

        Raises
        ------
        NonFiniteLoss, InvalidSetting, UnknownJob
            The loss is not a number, the step not a whole one, or the call outside of the block.
        StopTraining
            The job was stopped. The loss was reported.

        Examples
        --------
        >>> with job("mine") as mine:  # doctest: +SKIP
        ...     for _ in range(100):
        ...         mine.report(one_iteration())
        """
        value = self._losses.loss_of(loss, step)
        if value is not None:
            self._report_loss(value, step)

    def _report_loss(self, loss: float, step: int | None = None) -> None:
        """Report a loss, which is lower for better models; see `report`."""
        loss = self._losses.report(loss, step, self._say)
        if self._plain and self._settings["stop"] and self._settings["target_kind"] == "loss":
            target = self._settings["target"]  # without the plugin, nobody else looks
            if target is not None and is_usable(loss) and loss <= target:
                self._ask_to_stop()
        if self._asked_to_stop:
            raise StopTraining(self._why_stopped)

    def reporter(self) -> Reporter:
        """Return a picklable function ``report(loss)`` for the tasks of the job on workers.

        A loss arrives before the result of the task that reported it. Call it once per iteration,
        so in one of the tasks that train together. Some reports after the job was stopped, it
        raises `StopTraining`; on a worker that joins after the stop it does not.

        Returns
        -------
        Reporter

        Raises
        ------
        UnknownJob
            The call is outside of the job's block.

        Examples
        --------
        >>> with job("a") as a:  # doctest: +SKIP
        ...     model = client.submit(train, data, a.reporter()).result()
        """
        client = self._client
        if client is None:
            raise UnknownJob(f"job {self.name!r} is not running: call reporter in its block")
        with self._lock:
            if self._mailbox is None:
                self._session = ReportSession(self.report)
                with client.as_current():
                    self._mailbox = Mailbox(self._session, "its tasks")
            return Reporter(self.name, self._mailbox.route)

    def bind(self, function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        """Return a function that runs in this block, whichever thread calls it.

        A block counts in the thread that entered it. What other threads submit belongs to no job,
        unless they call a function that was bound in the block.

        Parameters
        ----------
        function : callable
            Submits tasks, or calls `report`.

        Returns
        -------
        callable

        Raises
        ------
        UnknownJob
            The call is outside of the job's block.

        Examples
        --------
        >>> with search("study") as block:  # doctest: +SKIP
        ...     study.optimize(block.bind(objective), n_trials=40, n_jobs=4)
        """
        if running_job.get() is not self or self._client is None:
            raise UnknownJob(f"bind() was called outside of the block of {self.name!r}")
        context = copy_context()

        @functools.wraps(function)
        def bound(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            return context.copy().run(function, *args, **kwargs)  # of its own in each thread

        return bound

    def _warn_of_threads(self) -> None:
        """Warn that another thread submits tasks that do not belong to the job."""
        # Coroutines outside of the block share an asynchronous client with those inside.
        if self._client is not None and not (self._asynchronous or self.in_background):
            logger.warning(
                "tasks are submitted outside of the open block of %r, and do not belong to it: a "
                "block counts in the thread that entered it. To take a thread along, call there "
                "a function that was bound in the block: pool.map(block.bind(function), ...) or "
                "study.optimize(block.bind(objective), n_jobs=4), after 'as block'",
                self.name,
            )

    def _warn_of_limits(self, why: str) -> None:
        """Warn that limits never let tasks of the job start."""
        logger.warning("%r is blocked: %s; stop it, or change that", self.name, why)

    def set(self, **settings: float) -> None:
        """Change settings of the job while it runs: those of `dask_slaq.change`."""
        return change(self.name, client=self._client, **settings)

    def pause(self) -> None:
        """Pause the job; see `dask_slaq.pause`."""
        return pause(self.name, client=self._client)

    def unpause(self) -> None:
        """Let the paused job go on; see `dask_slaq.unpause`."""
        return unpause(self.name, client=self._client)

    def stop(self) -> None:
        """Let the next report raise `StopTraining`; see `dask_slaq.stop`."""
        return stop(self.name, client=self._client)

    def __repr__(self) -> str:
        n, latest = self._losses.reports, self._losses.latest
        doing = f"{self.iteration} iterations" if self.is_open else "not begun"
        if self._outcome and not self.is_open:
            how = self._outcome.replace("done", "ended")
            doing = f"{how} after {n} report{'s' * (n != 1)}"
            doing += f", loss {-latest if self._losses.negates else latest:.4g}" * bool(n)
            doing += ", without the plugin" * self._plain
        return f"<Job {self.name!r}: {doing}>"

    def _repr_html_(self) -> str:
        client = self._client
        if client is None or client.asynchronous:
            return escape(repr(self))
        try:
            found = status(client)
            jobs = {name: row for name, row in found["jobs"].items() if name == self.name}
            return Status({**found, "jobs": jobs})._repr_html_()
        except Exception as error:  # a notebook must show its cell
            return escape(f"{self!r} ({error})")

    async def _close(self, client: Client, outcome: str = "done") -> None:
        if client.status == "running" and not self._plain and not self._over(client):
            known = {"name": self.name, "run": self._run}
            await request(
                client, "slaq_close", **known, reports=self._losses.reports, outcome=outcome
            )

    def _enter(self, client: Client) -> Self:
        super()._enter(client)
        self._asynchronous = client.asynchronous  # in this thread, and not on its event loop
        self._losses.begin()
        self._losses.negates = bool(self._opened.get("maximizes"))  # as a model of a search
        self._fits = 0
        self._described = False
        if self._observes and dask.config.get("slaq.instrument", True):
            callbacks = {"expect": self._expect, "describe": self._describe}
            self._end_fits(observe_fits(self._report_loss, **callbacks))
        return self

    def _leave(self) -> Client:
        client = super()._leave()
        if self._session is not None:
            self._session.open = False
            self._session = self._mailbox = None
        return client

    def _expect(self, iterations: int) -> None:
        """Report that a fit of at most `iterations` begins; a second fit withdraws the bound."""
        with self._lock:
            self._fits += 1
            if self._settings["max_iter"] is None and self._fits <= 2:
                self._say("slaq-expect", iterations=iterations if self._fits == 1 else None)

    def _describe(self, kind: Mapping[str, Any]) -> None:
        """Tell the kind of a fit that begins. The first fit of a job tells that of the job."""
        if self._settings["kind"] is None and not self._described:
            self._described = True
            self._say("slaq-kind", kind=check_kind(kind))
