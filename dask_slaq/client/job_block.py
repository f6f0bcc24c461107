"""Block of a job: annotates the tasks submitted inside it, and queues its losses.

`report` queues a loss on the client's stream to the scheduler and returns in microseconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
import threading
import uuid
import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar, copy_context
from dataclasses import replace
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import dask
from dask.utils import parse_timedelta

from dask_slaq.adapters import observe_fits, repairs
from dask_slaq.adapters.observing import Mailbox, ReportSession
from dask_slaq.client.changes import listen, pause, resume, set_job, stop
from dask_slaq.client.connection import current_client, go_without, owner_of_client, request
from dask_slaq.client.keeping import DriverState
from dask_slaq.client.live import Status
from dask_slaq.client.plotting import plot
from dask_slaq.client.queries import status
from dask_slaq.core.errors import InvalidSetting, NoPlugin, SlaqError, StopTraining, UnknownJob
from dask_slaq.core.job_settings import (
    CHANGEABLE,
    JOB_SETTINGS,
    SENT,
    check_job_settings,
    given_settings,
)
from dask_slaq.core.memory import check_kind
from dask_slaq.core.reports import as_loss, is_usable
from dask_slaq.core.settings import SPARE_LABEL, check_name, check_stage, shown
from dask_slaq.core.task_reports import NO_LOSS, Iterations, as_metric, as_metrics, as_step
from dask_slaq.worker import Reporter, begin_trial_again, job_of_task, report_trial

if TYPE_CHECKING:
    from distributed import Client

    from dask_slaq.client.submit import TrainingFuture

logger = logging.getLogger(__name__)

#: Clients that were warned that the end of a job reached no plugin.
_without_plugin: WeakSet[Client] = WeakSet()

# Dask warns that DataFrames built in a job block ignore annotations. The warning does not apply:
# the annotations take effect when the tasks are submitted.
warnings.filterwarnings("ignore", r"Dask annotations \{'slaq_job'", UserWarning)

#: Job whose block the running code is in.
running_job: ContextVar[Job | None] = ContextVar("slaq_job", default=None)


class Job:
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
    #: Whether what is reported to it is a score, minus which is its loss.
    _negates = False

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        client: Client | None,
        more: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.name = name
        self._lock = threading.RLock()  # around what several threads may call at once
        self._iterations, self._reports = Iterations(), 0
        self._anew = False  # whether the next report begins its training again
        self._warned: set[str] = set()  # causes that this block has warned about
        self._settings = settings
        self._more = dict(more)  # what else the scheduler is told, of a search
        self.owner = settings["owner"]
        self._given_client = client
        self._named = self._metric = ""  # name of the loss: as given, and once it is known
        self._client: Client | None = None
        self._stack = contextlib.ExitStack()
        self._connection: object = None
        self._run = ""
        self._lost = self._asynchronous = False
        self._params: dict[str, Any] = {}  # of the model that it trains, in the block of a search
        self.in_background = False  # whether `submit` runs it in a thread of its own
        self._fits = self._stages = 0
        self._described = False
        self._asked_to_stop = False
        self._plain = False
        self._block: ReportSession | None = None  # of fits that are observed
        self._outer, self._of_task = running_job.get(), None
        # Receives what tasks report; made on demand, once per block.
        self._session: ReportSession | None = None
        self._mailbox: Mailbox | None = None
        self._state: DriverState | None = None
        self._opened: Any = None  # what the scheduler has answered

    @property
    def iteration(self) -> int:
        """Iterations reported since the block was entered."""
        return self._iterations.last

    def report(self, loss: float | Mapping[str, float], step: int | None = None) -> None:
        """Report the loss of an iteration without blocking.

        Lower is better, unless it is a model of a search that maximizes.

        Parameters
        ----------
        loss : float or Mapping
            Any value that ``float()`` converts, except strings, bytes and booleans. One that is
            nan or infinite is dropped with one warning, and its iteration counts. Of a mapping, the
            `metric` of the job, or else the first one of the first report; a report without it
            is dropped, with one warning.
        step : int, optional
            Number of the iteration, from 0 or 1, if not every one is reported. By default the next
            one. One that is not above the last counts as the next, with one warning; but the first
            one begins the training again, see `begin_again`.

        Raises
        ------
        NonFiniteLoss
            The loss is not a number. Nothing is reported.
        InvalidSetting
            The step is not a whole number. Nothing is reported.
        UnknownJob
            The job is not running: the call is outside its block.
        StopTraining
            The job was stopped. The loss was reported.
        """
        if self._iterations.goes_back(step):
            self._metric = self._named
        metrics = as_metrics(loss, self._metric)
        if not metrics:
            self._warn_once(NO_LOSS % (self._metric, ", ".join(map(shown, loss))))
            return
        if isinstance(loss, Mapping):
            self._metric = self._metric or next(iter(metrics))
        value = next(iter(metrics.values()))
        self._report_loss(-value if self._negates else value, step)

    def _report_loss(self, loss: float, step: int | None = None) -> None:
        """Report a loss, which is lower for better models; see `report`."""
        loss, step = as_loss(loss), as_step(step)
        with self._lock:
            anew = self._anew or self._iterations.goes_back(step)
            iterations = Iterations() if anew else replace(self._iterations)
            iteration = iterations.count(step)
            more = ({} if step is None else {"step": iteration}) | ({"anew": True} if anew else {})
            if self._say("slaq-report", loss=loss, **more):
                self._anew = False
                self._iterations, self._reports = iterations, self._reports + 1
        if not is_usable(loss):
            self._warn_once(f"a loss of {loss} was dropped: only its iteration counts")
        if iterations.repeated:
            self._warn_once("a step was not above the last one: it counts as the next iteration")
        if self._plain and self._ends_at(loss):
            self.ask_to_stop()
        if self._asked_to_stop:
            raise StopTraining(self._why_stopped)

    def begin_again(self) -> None:
        """Let the next report begin the training again; see `dask_slaq.begin_again`."""
        self._anew, self._metric = self._reports > 0, self._named

    def keep(self, state: Any) -> Any:
        """Keep the state of the training loop, from which the program goes on if it is run again.

        In the next block of a job of this name and owner, also in a new program, `dask_slaq.resume`
        returns the last state. It is on two workers, in Dask's memory, until the job ends well.
        Call it in each iteration: at most one state per second is kept, and fewer if that would
        take more than 2 % of the time. Meanwhile the call waits.

        Parameters
        ----------
        state : object or callable
            Whatever the loop needs to go on, or a function that returns it, which is called only
            when the state is kept.

        Returns
        -------
        bool
            Whether it was kept. With an asynchronous client, an awaitable is returned.

        Raises
        ------
        UnknownJob
            The job is not running: the call is outside its block.

        Examples
        --------
        >>> with job("a") as a:  # doctest: +SKIP
        ...     model, step = slaq.resume() or (make_model(), 0)
        ...     while step < 100:
        ...         model, step = train_one_step(model), step + 1
        ...         a.keep((model, step))
        ...         a.report(model.loss)
        """
        return self._with_state(lambda client, kept: kept.keep(client, state), False)

    def last_state(self) -> Any:
        """Return the last state that was kept under the name of the job; see `keep`."""
        return self._with_state(lambda client, kept: kept.find(client), None)

    def _with_state(self, what: Callable[[Client, DriverState], Any], otherwise: Any) -> Any:
        client = self._client
        if client is None:
            raise UnknownJob(f"job {self.name!r} is not running: keep states inside its block")
        with self._lock:
            if self._state is None:
                self._state = DriverState(self.name, self._run)
        if self._plain or self._over(client):
            return client.sync(_give, otherwise)
        return client.sync(what, client, self._state)

    def reporter(self) -> Reporter:
        """Return a picklable function ``report(loss)`` for the tasks of the job on workers.

        A loss travels through the job's client, and arrives before the result of the task that
        reported it. Call it once per iteration, so in one of the tasks that train together. After
        the job was stopped, `report` raises `StopTraining` as soon as the worker knows, some
        reports later; a worker that joins after the stop does not know.

        Returns
        -------
        Reporter

        Raises
        ------
        UnknownJob
            The job is not running: the call is outside its block.

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
                self._session = ReportSession(self.report, None)
                with client.as_current():
                    self._mailbox = Mailbox(self._session, "its tasks")
            return Reporter(self.name, self._mailbox.route)

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Submit the tasks of a stage of the job, such as "features", in a ``with`` block.

        They belong to the job as before. The scheduler counts and times each stage by itself, and
        forecasts the job's end by the stages that are left: of those to come, past runs of like
        kind tell. Of nested stages, the inner one counts. A stage may be entered several times.
        The steps of a scikit-learn ``Pipeline`` that is fitted in the job are stages already.

        Parameters
        ----------
        name : str
            Of 1 to 256 characters.

        Raises
        ------
        InvalidSetting
            The name is invalid.
        UnknownJob
            The job is not running: the call is outside its block.

        Examples
        --------
        >>> with job("churn") as churn:  # doctest: +SKIP
        ...     with churn.stage("features"):
        ...         X = make_features(raw).persist()
        ...     with churn.stage("train"):
        ...         LogisticRegression().fit(X, y)
        """
        check_stage(name)
        if self._client is None:
            raise UnknownJob(f"job {self.name!r} is not running: enter a stage in its block")
        with self._lock:
            self._stages += 1
            # As of the job, see `_enter`: the number tells which of several was entered last.
            number = f"slaq_stage:{self._run}:{self._stages}"
        with dask.annotate(slaq_stage=name, **{number: name}):
            yield

    def bind(self, function: Callable[..., Any]) -> Callable[..., Any]:
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
            Takes the same arguments and returns the same.

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
        def bound(*args: Any, **kwargs: Any) -> Any:
            return context.copy().run(function, *args, **kwargs)  # of its own in each thread

        return bound

    def warn_of_threads(self) -> None:
        """Warn that another thread submits tasks that do not belong to the job."""
        # Coroutines outside of the block share an asynchronous client with those inside.
        if self._client is not None and not self._asynchronous and not self.in_background:
            logger.warning(
                "tasks are submitted outside of the open block of %r, and do not belong to it: a "
                "block counts in the thread that entered it. To take a thread along, call there "
                "a function that was bound in the block: pool.map(block.bind(function), ...) or "
                "study.optimize(block.bind(objective), n_jobs=4), after 'as block'",
                self.name,
            )

    def ask_to_stop(self) -> None:
        """Let the next report raise `StopTraining`, and fits that begin from now on."""
        self._asked_to_stop = True
        if self._block is not None:
            self._block.stop(self._why_stopped)

    @property
    def _why_stopped(self) -> str:
        return f"job {self.name!r} was stopped: end the training loop"

    def aim_at(self, target: float) -> None:
        """Set the target that counts where the scheduler does not run the plugin."""
        self._settings["target"] = target

    def _ends_at(self, loss: float) -> bool:
        """Return whether the job is to stop at a loss: without the plugin, nobody else looks."""
        settings = self._settings
        target = settings["target"] if settings["target_kind"] == "loss" else None
        reached = target is not None and is_usable(loss) and loss <= target
        return bool(settings["stop"] and reached)

    def set(
        self,
        *,
        weight: float | None = None,
        min_share: float | None = None,
        max_share: float | None = None,
        target: float | None = None,
        latest: float | None = None,
        worth_per_hour: float | None = None,
    ) -> Any:
        """Change settings of the job while it runs. See `set_job`."""
        return set_job(self.name, **given_settings(locals(), CHANGEABLE), client=self._client)

    def pause(self) -> Any:
        """Pause the job. See `dask_slaq.pause`."""
        return pause(self.name, client=self._client)

    def resume(self) -> Any:
        """Resume the job."""
        return resume(self.name, client=self._client)

    def stop(self) -> Any:
        """Let the next report raise `StopTraining`."""
        return stop(self.name, client=self._client)

    def plot(self) -> Any:
        """Return a Matplotlib figure of the job's loss, its forecast, and its threads."""
        return plot(self.name, client=self._client)

    @property
    def is_open(self) -> bool:
        """Whether its block was entered and not left."""
        return self._client is not None

    def __repr__(self) -> str:
        doing = f"{self.iteration} iterations" if self.is_open else "does not run"
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

    def _say(self, op: str, **what: Any) -> bool:
        """Send a message to the scheduler. Returns whether it was queued."""
        if self._client is None:
            raise UnknownJob(f"job {self.name!r} is not running: report inside its 'with' block")
        if self._plain:
            return True
        if self._over(self._client):
            return False
        try:
            self._client._send_to_scheduler({"op": op, "job": self.name, "run": self._run, **what})
        except Exception as error:
            self._lose(error)
            return False
        return True

    def _warn_once(self, why: str) -> None:
        cause = why.partition(":")[2]
        with self._lock:
            new = cause not in self._warned
            self._warned.add(cause)
        if new:
            logger.warning("job %s: %s", self.name, why)

    def _over(self, client: Client) -> bool:
        """Return whether the connection on which the job began is lost.

        The scheduler ended the job with it, and another job may have taken the name since.
        """
        over = client.scheduler_comm is not self._connection
        if over:
            self._lose("its client lost its connection, and the rest of its block is no job's")
        return over

    def _lose(self, why: object) -> None:
        """Warn, once per block, that losses no longer reach the scheduler; training continues."""
        if not self._lost:
            self._lost = True
            logger.warning("the losses of job %s no longer get through: %s", self.name, why)

    def __enter__(self) -> Job:
        client = current_client(self._given_client)
        if client.asynchronous:
            raise SlaqError("the client is asynchronous: use 'async with' for the job")
        repairs.follow_settings()
        self._outer, self._of_task = running_job.get() or self._outer, job_of_task()
        client.sync(self._open, client)
        return self._enter(client)

    def __exit__(self, error: object = None, *_: object) -> None:
        client = self._leave()
        try:
            client.sync(self._close, client, self._outcome(error), callback_timeout=10)
        except Exception as why:
            self._warn_of_end(client, why)

    async def __aenter__(self) -> Job:
        client = current_client(self._given_client)
        if not client.asynchronous:  # its answers come on another event loop
            raise SlaqError("the client is not asynchronous: use 'with' for the job")
        repairs.follow_settings()
        self._outer, self._of_task = running_job.get() or self._outer, job_of_task()
        await self._open(client)
        return self._enter(client)

    async def __aexit__(self, error: object = None, *_: object) -> None:
        client = self._leave()
        try:
            await asyncio.wait_for(self._close(client, self._outcome(error)), 10)
        except Exception as why:
            self._warn_of_end(client, why)

    def _warn_of_end(self, client: Client, why: Exception) -> None:
        """Warn that the end of the job was not told; of a plugin that is gone once per client."""
        if isinstance(why, NoPlugin):
            if client in _without_plugin:
                return
            _without_plugin.add(client)
        logger.warning("could not tell the scheduler that job %s ended: %s", self.name, why)

    async def _open(self, client: Client) -> None:
        if self._client is not None:
            raise SlaqError(f"job {self.name!r} is running already: its block is entered twice")
        # Lets the scheduler distinguish this block from earlier and later ones of the same name.
        self._run = uuid.uuid4().hex
        known: dict[str, Any] = {"name": self.name, "run": self._run}
        outer = self._outer.name if self._outer is not None and self._outer.is_open else None
        if (around := outer or self._of_task) is not None:
            known["within"] = around  # its end may wait for that of this job
        if self._params:
            known["params"] = self._params
        given = "" if outer is None or self._outer is None else self._outer.owner
        owner = self.owner or given or owner_of_client()
        self._asked_to_stop, self._opened = False, None
        listen(client, self._run, self)
        self._plain = False
        try:
            # Other releases of the plugin refuse settings that they do not know.
            given = {
                name: self._settings[name]
                for name in SENT
                if self._settings[name] != JOB_SETTINGS[name].default
            }
            known |= {**given, **self._more, "owner": owner}
            self._opened = await request(client, "slaq_open", **known)
            # Of which search it is a model. Other releases of the plugin answer nothing.
            answer = self._opened if isinstance(self._opened, dict) else {}
            self._negates = bool(answer.get("maximizes"))
        except NoPlugin as error:
            go_without(client, error)
            self._plain = True

    def _know_model(
        self, future: TrainingFuture, function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Know a training that was submitted in the block, and what it is called with."""

    def _outcome(self, error: object) -> str:
        """Return how the training ended that left its block with an exception of this class."""
        stopped = self._asked_to_stop or error is StopTraining
        return "stopped" if stopped else "done" if error is None else "failed"

    async def _close(self, client: Client, outcome: str = "done") -> None:
        if client.status == "running" and not self._plain and not self._over(client):
            known = {"name": self.name, "run": self._run}
            await request(client, "slaq_close", **known, reports=self._reports, outcome=outcome)

    def _enter(self, client: Client) -> Job:
        # Layers keep the annotations of the block in which they were built, which override those
        # of the block in which they are computed. So each block also adds a key of its own.
        annotations: dict[str, Any] = {"slaq_job": self.name, f"slaq_job:{self.name}": True}
        outer = running_job.get()
        # A nested job needs its own resources, not those of the outer job.
        if self._settings["resources"] or (outer and outer._settings["resources"]):
            annotations["resources"] = self._settings["resources"]
        if self._settings["spare"]:
            annotations[SPARE_LABEL] = True
        self._client, self._asynchronous = client, client.asynchronous
        self._connection = client.scheduler_comm
        self._iterations = Iterations()
        self._reports = self._fits = self._stages = 0
        self._lost = self._described = False
        self._state = None
        self._warned.clear()
        self._stack.enter_context(client.as_current())
        self._stack.enter_context(dask.annotate(**annotations))
        if self._observes and dask.config.get("slaq.instrument", True):
            session = observe_fits(self._report_loss, self._expect, self._describe, self._step)
            self._block = self._stack.enter_context(session)
            if self._asked_to_stop:  # already
                self.ask_to_stop()
        # After all graphs that were sent before, on the same stream.
        self._say("slaq-enter")
        token = running_job.set(self)
        self._stack.callback(running_job.reset, token)
        return self

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

    def _step(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Return the stage of a step; none in a context that outlived the block."""
        return self.stage(name) if self.is_open else contextlib.nullcontext()

    def _leave(self) -> Client:
        client, self._client = self._client, None
        self._block = None
        if client is None:
            raise SlaqError(f"job {self.name!r} does not run: its block was left already")
        if self._session is not None:
            self._session.open = False
            self._session = self._mailbox = None
        try:
            self._stack.close()
        except Exception as error:
            # Most likely the block was entered in another thread or context, whose settings cannot
            # be undone from here. The job ends all the same.
            logger.warning("job %s was left elsewhere than it was entered: %s", self.name, error)
        return client


async def _give(value: Any) -> Any:
    return value


def job(
    name: str,
    *,
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    latest: float | None = None,
    resources: Mapping[str, float] | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    gang: bool = False,
    target_kind: str = "loss",
    by: str | float | None = None,
    stop: bool = False,
    kind: str | Mapping[str, Any] | None = None,
    owner: str | None = None,
    spare: bool = False,
    worth_per_hour: float | None = None,
    metric: str | None = None,
    client: Client | None = None,
) -> Job:
    """Create a job: a block of code whose Dask tasks and losses belong to one training run.

    Parameters
    ----------
    name : str
        Name of the job, unique among the jobs running on the scheduler.
    weight : float
        Relative importance, > 0.
    min_share, max_share : float, optional
        Least threads of the job, and most while other jobs want them.
    latest : float, optional
        Factor of its fair time, at least 1, at which the job ends at the latest; inf for no
        promise. Defaults to the ``slaq.latest`` setting of the scheduler.
    resources : Mapping of str to float, optional
        Worker resources that each task of the job needs, such as ``{"GPU": 1}``. The job is only
        granted workers that supply them.
    target : float, optional
        Loss to reach. Policies that rank jobs by the work left count up to it, and it stands in
        for the predicted final loss while the loss cannot be extrapolated.
    max_iter : int, optional
        Maximum number of iterations of the job; no loss reduction is predicted beyond it. Detected
        automatically for a job with a single fit of a supported library.
    gang : bool
        Whether tasks that are ready together must start together.
    target_kind : {"loss", "reduction"}
        Whether `target` is a loss, or a part of the predicted loss reduction, in (0, 1).
    by : str or float, optional
        Time in which the target should be reached, such as ``"10min"`` or in seconds. An alert
        tells when it will not be; see `alerts`.
    stop : bool
        Whether the job is stopped at its target: its next report raises `StopTraining`. Otherwise
        it goes on with its `min_share` and what other jobs leave.
    kind : str or mapping, optional
        Jobs of one kind have loss curves of like shape, so past ones tell how this one will go:
        a name such as ``"resnet"``, or a mapping with the name and numbers >= 0 that shape the
        curve, such as ``{"name": "resnet", "lr": 0.01, "rows": 1e6}``. Supported libraries state
        it automatically. Defaults to the job's name without its numbers.
    owner : str, optional
        Who the job belongs to. Defaults to that of the block around it, to the ``slaq.owner``
        setting, or else to ``user@host``.
    spare : bool
        Whether a task that runs late gets a second copy on an idle thread; the first result counts.
        Only for tasks that may run twice.
    worth_per_hour : float, optional
        What it is worth that the job ends an hour sooner, in the unit of the price in the setting
        ``slaq.scaling`` of the scheduler, which asks for workers by it. By default it is worth
        what the cluster of late has cost per hour of a job.
    metric : str, optional
        Name of the metric that is the loss, where mappings are reported.
    client : distributed.Client, optional
        Client of the job. Defaults to the current client.

    Returns
    -------
    Job
        A context manager. Entering it raises `DuplicateJob` if the name is taken, and
        `InvalidSetting` if ``slaq.repairs`` is invalid. If the scheduler does not run the plugin,
        the job runs under plain Dask with one warning per client; with ``slaq.require-plugin``,
        `NoPlugin` is raised.

    Raises
    ------
    InvalidSetting
        The name or a setting is invalid.

    Examples
    --------
    >>> with job("logreg-C0.1"):  # doctest: +SKIP
    ...     LogisticRegression(solver="gradient_descent").fit(X, y)
    """
    check_name(name)
    by = None if by is None else seconds_of(by)
    made = Job(name, check_job_settings(given_settings(locals())), client)
    made._named = made._metric = as_metric(metric) or ""
    return made


def report(
    loss: float | Mapping[str, float],
    step: int | None = None,
    *,
    state: Any = None,
    fold: Hashable = None,
) -> None:
    """Report the loss of an iteration: of the current job, or of the model of this task.

    In a job block it returns at once; see `Job.report`. In a task of a `search` it may wait while
    other models gain more. In another task it returns at once, with one warning.

    Parameters
    ----------
    loss : float or Mapping of str to float
        Lower is better, unless the search maximizes. One that is nan or infinite is dropped with
        one warning, and its iteration counts. Of several metrics, such as ``{"loss": 0.3, "auc":
        0.9}``, the loss is the ``metric`` of the block, or else the first one of the first report.
        One without it is dropped, with one warning. A search keeps up to eight others; see
        `Search.trials`.
    step : int, optional
        Number of the iteration, from 0 or 1, such as the epoch, if not every one is reported. By
        default the next one.
    state : object or callable, optional
        Whatever the function needs to go on after this report, or a callable that returns it, which
        is called only when the state is kept. With it, a model of a search may leave its worker in
        the report. Its task then begins again, here or elsewhere, where `resume` returns the state.
    fold : int or str, optional
        Fold of a cross-validation in the task, whose folds train in turns: one step of each, then
        the next step of each. The mean of each round of folds counts as one report.

    Raises
    ------
    NonFiniteLoss
        The loss is not a number.
    InvalidSetting
        The step is not a whole number.
    UnknownJob
        Called neither in a job block nor in a task, or in a thread started there: use `Job.report`.
    StopTraining
        The job or search was stopped; `TrialPruned` if the search gave this model up.
    """
    current = running_job.get()
    if current is not None:
        given = {"state": state, "fold": fold}
        current.report(loss, step, **{k: v for k, v in given.items() if v is not None})
    elif not report_trial(loss, step=step, state=state, fold=fold):
        raise UnknownJob(
            "report() was called outside a job: call it in a 'with dask_slaq.job(name)' block or "
            "in a task of a 'with dask_slaq.search(name)' block, or use job.report"
        )


def begin_again() -> None:
    """Let the next report begin a new curve, of the current job or of the model of this task.

    What was reported before no longer counts, as after a learning-rate finder, or if a model begins
    again with smaller batches because it ran out of memory. `report` with the first ``step`` once
    more, after others, does the same.

    Raises
    ------
    UnknownJob
        Called neither in a job block nor in a task, or in a thread started there.
    """
    current = running_job.get()
    if current is not None:
        current.begin_again()
    elif not begin_trial_again():
        raise UnknownJob("begin_again() was called outside a job and outside the task of a search")


def seconds_of(by: str | float, name: str = "by") -> float:
    """Return a time in seconds. Raises `InvalidSetting` with the `name` of the setting."""
    try:
        # Dask knows minutes as "m" only.
        return float(
            parse_timedelta(re.sub(r"(?<=\d)\s*min$", "m", by) if isinstance(by, str) else by)
        )
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSetting(
            f"{name} must be a time such as '10min' or a number of seconds, not {shown(by)}"
        ) from error
