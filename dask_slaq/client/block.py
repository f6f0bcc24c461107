"""Block that the scheduler knows: it opens, tells the scheduler what happens, and closes.

`Job` says what happens in it. Tasks that are submitted inside are annotated.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

import dask

from dask_slaq.adapters import repairs
from dask_slaq.client.connection import current_client, go_without, owner_of_client, request
from dask_slaq.client.messages import listen
from dask_slaq.config import repairs_libraries
from dask_slaq.core.errors import NoPlugin, SlaqError, StopTraining, UnknownJob
from dask_slaq.core.jobs.settings import JOB_SETTINGS, SENT
from dask_slaq.worker import job_of_task

if TYPE_CHECKING:
    from threading import Event

    from distributed import Client
    from typing_extensions import Self

    from dask_slaq.adapters.observing import ReportSession

logger = logging.getLogger(__name__)
Result = TypeVar("Result")

#: Clients that were warned that the end of a job reached no plugin.
_without_plugin: WeakSet[Client] = WeakSet()

# Dask warns that DataFrames built in a job block ignore annotations. The warning does not apply:
# the annotations take effect when the tasks are submitted.
warnings.filterwarnings("ignore", r"Dask annotations \{'slaq_job'", UserWarning)

#: Job whose block the running code is in.
running_job: ContextVar[Block | None] = ContextVar("slaq_job", default=None)


class Training(Future[Result]):
    """Future of a training in a thread of its own; `_begun` is set once its job has opened."""

    job: Block
    _begun: Event


class Block:
    """Block of a name, with `settings` and `more` that the scheduler is told."""

    def __init__(
        self,
        name: str,
        settings: dict[str, Any],
        client: Client | None,
        more: Mapping[str, Any],
    ) -> None:
        self.name, self.owner = name, settings["owner"]
        self._settings, self._more = settings, dict(more)
        self._given_client = client
        self._client: Client | None = None
        self._stack = contextlib.ExitStack()
        self._connection: object = None
        self._run = ""
        self._lost = self._plain = self._asked_to_stop = False
        self._outcome = ""  # how it was left
        self._params: dict[str, Any] = {}  # of the model that it trains, in the block of a search
        self._block: ReportSession | None = None  # of fits that are observed
        self._outer = running_job.get()
        self._of_task: str | None = None  # job of the task in which it is entered
        self._opened: dict[str, Any] = {}  # what the scheduler has answered

    @property
    def is_open(self) -> bool:
        """Whether its block was entered and not left."""
        return self._client is not None

    def _ask_to_stop(self) -> None:
        """Let the next report raise `StopTraining`, and fits that begin from now on."""
        self._asked_to_stop = True
        if self._block is not None:
            self._block.stop(self._why_stopped)

    @property
    def _why_stopped(self) -> str:
        return f"job {self.name!r} was stopped: end the training loop"

    def report(
        self, loss: float | Mapping[str, float], step: int | None = None, *, state: Any = None
    ) -> None:
        """Report the loss of an iteration; see `Job.report`."""
        raise NotImplementedError

    def _know_model(
        self, future: Training[Any], function: Callable[..., Any], args: Any, kwargs: Any
    ) -> None:
        """Know a training that was submitted in the block, and what it is called with."""

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

    def __enter__(self) -> Self:
        client = self._find_client(asynchronous=False)
        client.sync(self._open, client)
        return self._enter(client)

    def __exit__(self, error: object = None, *_: object) -> None:
        client = self._leave()
        try:
            client.sync(self._close, client, self._end(error), callback_timeout=10)
        except Exception as why:
            self._warn_of_end(client, why)

    async def __aenter__(self) -> Any:  # its methods return awaitables, of what they else return
        client = self._find_client(asynchronous=True)
        await self._open(client)
        return self._enter(client)

    async def __aexit__(self, error: object = None, *_: object) -> None:
        client = self._leave()
        try:
            await asyncio.wait_for(self._close(client, self._end(error)), 10)
        except Exception as why:
            self._warn_of_end(client, why)

    def _find_client(self, *, asynchronous: bool) -> Client:
        client = current_client(self._given_client)
        if client.asynchronous != asynchronous:  # its answers come on another event loop
            what, how = ("is not", "with") if asynchronous else ("is", "async with")
            raise SlaqError(f"the client {what} asynchronous: use '{how}' for the job")
        repairs_libraries()  # raises if the setting is invalid
        self._outer, self._of_task = running_job.get() or self._outer, job_of_task()
        return client

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
        self._asked_to_stop, self._opened = False, {}
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
            answer = await request(client, "slaq_open", **known)
            self._opened = answer if isinstance(answer, dict) else {}  # of other releases
        except NoPlugin as error:
            go_without(client, error)
            self._plain = True

    def _end(self, error: object) -> str:
        """Return how the training ended that left its block with an exception of this class."""
        stopped = self._asked_to_stop or error is StopTraining
        self._outcome = "stopped" if stopped else "done" if error is None else "failed"
        return self._outcome

    async def _close(self, client: Client, outcome: str = "done") -> None:
        raise NotImplementedError

    def _enter(self, client: Client) -> Self:
        # Layers keep the annotations of the block in which they were built, which override those
        # of the block in which they are computed. So each block also adds a key of its own.
        annotations: dict[str, Any] = {"slaq_job": self.name, f"slaq_job:{self.name}": True}
        outer = running_job.get()
        # A nested job needs its own resources, not those of the outer job.
        if self._settings["resources"] or (outer and outer._settings["resources"]):
            annotations["resources"] = self._settings["resources"]
        self._client, self._connection = client, client.scheduler_comm
        self._lost = False
        self._stack.enter_context(repairs.while_open())
        self._stack.enter_context(client.as_current())
        self._stack.enter_context(dask.annotate(**annotations))
        # After all graphs that were sent before, on the same stream.
        self._say("slaq-enter")
        token = running_job.set(self)
        self._stack.callback(running_job.reset, token)
        return self

    def _end_fits(self, session: contextlib.AbstractContextManager[ReportSession]) -> None:
        """Enter a session whose fits end when the block is stopped."""
        self._block = self._stack.enter_context(session)
        if self._asked_to_stop:  # already
            self._ask_to_stop()

    def _leave(self) -> Client:
        client, self._client = self._client, None
        self._block = None
        if client is None:
            raise SlaqError(f"job {self.name!r} does not run: its block was left already")
        try:
            self._stack.close()
        except Exception as error:
            # Most likely the block was entered in another thread or context, whose settings cannot
            # be undone from here. The job ends all the same.
            logger.warning("job %s was left elsewhere than it was entered: %s", self.name, error)
        return client
