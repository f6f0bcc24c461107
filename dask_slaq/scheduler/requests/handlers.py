"""Handlers of the requests and stream messages that clients and workers send to the plugin.

A request raises at its caller. An invalid stream message is dropped, and logged from time to time:
an exception would end the sender's connection. What is said of the sender in either does not count.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Hashable
from functools import partial
from importlib import import_module
from time import time
from typing import Any

from distributed.comm.core import Comm
from distributed.core import error_message

from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NoPlugin, NotAllowed, SlaqError
from dask_slaq.core.run_history import read_kind
from dask_slaq.core.settings import check_owner, is_number, is_whole, shown
from dask_slaq.scheduler import views
from dask_slaq.scheduler.current import RunningPlugin
from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.owners.identity import Sender, sender_of_message
from dask_slaq.scheduler.requests.audit import audit, in_words
from dask_slaq.scheduler.requests.validation import Dropped, check_opening, check_trial


class WaitingRequests:
    """Those who wait for conditions, which are looked at whenever something may have changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}

    async def until(self, holds: Callable[[], object], seconds: float = 2.0) -> None:
        """Wait until a condition holds, or for some `seconds`."""
        if holds():
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = holds
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            del self._waiting[future]

    def look(self) -> None:
        """Let those go on whose condition holds now."""
        for future, holds in list(self._waiting.items()):
            if not future.done() and holds():
                future.set_result(None)


logger = logging.getLogger(__name__)

#: Maximum number of changes that are remembered.
MOST_AUDITED_CHANGES = 10_000

#: Requests, each by the name of its method, or of a function of `steering`, loaded for it.
REQUESTS = (
    *("introduce", "open", "close", "train_on", "trials", "left", "status"),
    *("history", "bindings"),
    *("explain", "usage", "audit", "ended", "workers", "steer", "policy", "owner", "limit"),
    *("reserve", "unreserve", "reservations", "models", "whatif", "follow"),
)
#: Those that change something, and those that need no registered plugin.
AUDITED = ("steer", "policy", "owner", "limit", "reserve", "unreserve")
ALWAYS = ("introduce", "close", "left", "audit")
#: Those for which a client must prove who it is; and those whose first argument is the client.
OF_CLIENT = ("introduce", "open", "close", "follow")
PEOPLES = (*OF_CLIENT, "steer")
#: Arguments of requests by which something is found.
IDENTIFIERS = frozenset({"name", "job", "run", "mark"})
#: Messages of streams, each by the name of its method, and what they are in words.
MESSAGES = {
    "prove": "proof",
    "report": "report",
    "expect": "number of iterations",
    "kind": "kind",
    "trial": "trial",
    "enter": "begin of a block",
    "leave": "end of a block",
    "mark": "mark",
}


class Messages:
    """Scheduler handlers of one plugin.

    Messages of streams may have further arguments, which are of other releases.
    """

    def __init__(self, plugin: RunningPlugin) -> None:
        self.plugin, self.fall_back = plugin, plugin.fall_back
        self.waiting = WaitingRequests()
        self._dropped = Dropped(plugin.enter)
        self._requests = {f"slaq_{name}": self._answer(name) for name in REQUESTS}

    def register(self) -> None:
        """Install the handlers, replacing those of an earlier plugin."""
        scheduler = self.plugin.scheduler
        scheduler.handlers.update(self._requests)
        for name, what in MESSAGES.items():
            scheduler.stream_handlers[f"slaq-{name}"] = self._follow(name, what)

    def handler(self, name: str) -> Callable[..., Any]:
        """Return what answers a request, with the arguments of its message."""
        if (method := getattr(self, name, None)) is not None:
            return method
        return partial(getattr(import_module(f"{__package__}.steering"), name), self.plugin)

    def _answer(self, name: str) -> Callable[..., Any]:
        """Return the handler of a request: what it refuses is one line in the log, and audited."""
        operation = f"slaq_{name}"

        async def answer(
            comm: Comm, client: object = None, proof: object = None, **message: Any
        ) -> Any:
            refused, found, known = None, None, ""
            try:
                sender = None
                if name in OF_CLIENT or (name == "steer" and proof is not None):
                    sender = await self.plugin.identity.prove(proof, self.waiting.until)
                message = self.plugin.identity.check(operation, comm, message, sender)
                known = message.get("by", "") if self.plugin.identity.counts else ""
                if name not in ALWAYS:
                    self.plugin.check_registered()
                who = (sender,) if name in PEOPLES else ()
                found = await self._act(name, partial(self.handler(name), *who), message)
            except SlaqError as error:
                refused = error
                found = error_message(error, status="uncaught-error")  # the client raises it
            if name in AUDITED:
                asked, scheduler = in_words(operation, message), self.plugin.scheduler
                by, where, job = message.get("by"), comm.peer_address, message.get("job")
                about = {"job": job, "refused": refused, "known": known}
                audit(scheduler, asked, by=by, where=where, **about)
            elif refused is not None:
                logger.info("%s from %s was refused: %s", operation, comm.peer_address, refused)
            return found

        answer.plugin = self.plugin  # type: ignore[attr-defined]
        return answer

    async def _act(self, name: str, handle: Callable[..., Any], message: dict[str, Any]) -> Any:
        """Do what is asked. An error in it, of which arguments may be the cause, is only raised.

        Parts that change several records fall back themselves: the client then has `NoPlugin`.
        """
        try:
            inspect.signature(handle).bind(**message)
        except TypeError as error:
            raise InvalidSetting(f"slaq_{name}: {error}") from None
        for each in IDENTIFIERS & message.keys():
            if not isinstance(message[each], Hashable):
                raise InvalidSetting(f"slaq_{name}: no {each} is {shown(message[each])}")
        try:
            found = handle(**message)
            return await found if inspect.isawaitable(found) else found
        except RecursionError as error:
            raise InvalidSetting(f"slaq_{name}: an argument is nested too deeply") from error
        except SlaqError:
            raise
        except Exception as error:
            logger.exception("slaq_%s failed", name)
            if self.plugin.failed is None or name in ALWAYS:
                raise
            raise NoPlugin(f"dask_slaq failed in slaq_{name}: {self.plugin.failed}") from error

    def _follow(self, name: str, what: str) -> Callable[..., None]:
        """Return the handler of a stream message: an invalid one is dropped, and that is logged."""

        def follow(*, client: object = None, worker: object = None, **message: Any) -> None:
            self._take(getattr(self, name), what, message)

        return follow

    @guarded_as(always=True)
    def _take(self, handle: Callable[..., None], what: str, message: dict[str, Any]) -> None:
        """Handle a message, or drop it."""
        try:
            if (sender := sender_of_message()) is None or not sender.name:
                raise NotAllowed("it came on the connection of no client or worker")
            handle(sender, **message)
        except (SlaqError, RecursionError) as error:  # the latter if it is nested too deeply
            self.drop(what, error)
        self.waiting.look()

    def drop(self, what: str, error: Exception) -> None:
        """Count a message that is dropped, and log by whose connection it came."""
        sender = sender_of_message()
        self._dropped.add(what, "" if sender is None else sender.name, error)

    @property
    def current(self) -> bool:
        """Whether the scheduler still uses the handlers of this plugin."""
        handler = self.plugin.scheduler.handlers.get("slaq_open")
        return bool(handler == self._requests["slaq_open"])

    # Jobs

    def introduce(self, sender: Sender, /, owner: str) -> None:
        """Record the owner of a client's tasks outside jobs."""
        self.plugin.jobs.owners.introduce(sender.client, check_owner(owner))

    def follow(self, sender: Sender, /) -> None:
        """Tell a client all alerts from now on."""
        self.plugin.subscribers.add(sender.client)

    async def open(self, sender: Sender, /, name: str, **given: Any) -> dict[str, Any]:
        """Begin a job of a client; see `check_opening` for its settings.

        Returns the ``keys`` of the tasks of a search that was kept, if it reattaches to one, and
        for a job in the block of a search, whether that ``maximizes``.
        """
        self._check_connected(sender)
        checked, run_history = check_opening(name, given), self.plugin.run_history
        search, reattach = checked.pop("search"), checked.pop("reattach")
        params = checked.pop("params")
        kept = None
        if search is not None:
            searches = self.plugin.searches
            left = searches.kept.find(name, checked["owner"])
            if left is not None and searches.is_left(left):
                if not reattach:
                    raise DuplicateJob(
                        f"search {shown(name)} goes on without its block: "
                        f"slaq.search({shown(name)}, reattach=True) finds it again, and "
                        f"slaq.stop({shown(name)}) ends it"
                    )
                self.plugin.jobs.hand_over(name, sender.client, sender.comm, checked["run"])
                searches.hand_over(left, checked["run"], search)
                self.plugin.changed()
                return {"keys": list(left.keys)}
            kept = left if reattach else None
        await run_history.prepare(name, checked["kind"])
        self._check_connected(sender)  # the client may have left meanwhile
        around = None
        if search is None:
            around = self.plugin.searches.around(checked["within"], checked["owner"])
        competing, answer = name if search is not None else "", dict[str, Any]()
        if around is not None:
            settings = around.trials.settings
            competing = around.pool.name if settings.goal == "best" else ""
            answer["maximizes"] = settings.maximize
            checked["max_iter"] = checked.get("max_iter") or settings.steps
        try:
            self.plugin.jobs.open(
                name, sender.client, comm=sender.comm, search=competing, **checked
            )
            if answer.get("maximizes") or (search is not None and search.maximize):
                self.plugin.jobs.goals.maximize(name)
            if search is not None:
                owner = checked["owner"]
                about = name, owner, checked["kind"]
                past = run_history.models_like(*about, maximize=search.maximize)
                if search.goal == "best":
                    answer["past"] = [tuple(model) for model in past]
                searches.begin(name, checked["run"], search, owner=owner, kept=kept, past=past)
            if around is not None:
                self.plugin.searches.begin_job(name, around, params)
            run_history.begin(name, checked["kind"])
            self.plugin.began(name)
        except Exception as error:
            if not isinstance(error, SlaqError):  # otherwise there was one of its name before
                self.plugin.fall_back(error)
                self.plugin.end_job(name)
            raise
        return answer if kept is None else {"keys": list(kept.keys)}

    def _check_connected(self, sender: Sender) -> None:
        """Raise `NotAllowed` if a client has left, or has connected again."""
        stream = self.plugin.scheduler.client_comms.get(sender.client)
        if getattr(stream, "comm", None) is not sender.comm or not sender.is_open:
            raise NotAllowed(f"the client {shown(sender.client)} has left")

    async def close(
        self, sender: Sender, /, name: Any, reports: Any = 0, run: Any = None, outcome: Any = "done"
    ) -> None:
        """End a job once `reports` reports have been received, or after two seconds.

        They travel on the client's stream. The identifier `run` of its block leaves a later job of
        this name alone.
        """
        jobs = self.plugin.jobs
        if not jobs.runs(name, run):
            return
        run = jobs.owned(name, sender.comm)
        if is_number(reports):
            await self.waiting.until(
                lambda: not jobs.runs(name, run) or jobs.reports[name] >= reports
            )
        if jobs.runs(name, run):
            known = str(outcome) if outcome in ("done", "stopped") else "failed"
            self.plugin.end_job(name, "stopped" if name in jobs.stopping else known)

    async def trials(self, run: Any, curves: Any = False, mark: Any = None) -> list[dict[str, Any]]:
        """Return the trials of a search by the identifier of its block; see `Search.trials`.

        They are those that its client submitted before a mark.
        """
        await self.waiting.until(lambda: self.plugin.searches.has_mark(run, mark))
        return self.plugin.searches.tables.trials(run, curves=bool(curves))

    async def train_on(
        self, run: Any, keys: Any, best: Any, steps: Any, mark: Any = None
    ) -> list[dict[str, Any]]:
        """Return tasks of a search, by the identifier of its block; see `Tables.train_on`."""
        if not (is_whole(steps, 1) and (best is None or is_whole(best, 1))):
            raise InvalidSetting(f"best and steps are numbers >= 1, not {shown((best, steps))}")
        if keys is not None and not isinstance(keys, list | tuple):
            raise InvalidSetting(f"keys must be a list of keys, not {shown(keys)}")
        await self.waiting.until(lambda: self.plugin.searches.has_mark(run, mark))
        return self.plugin.searches.tables.train_on(run, keys, best, steps)

    async def left(self, run: Any) -> None:
        """Wait until the end of a search's block has arrived on the stream, or for two seconds."""
        await self.waiting.until(lambda: not self.plugin.searches.is_open(run))

    # What people look at

    def status(self) -> dict[str, Any]:
        """Return the state of the scheduler and of every job; see `JOB_COLUMNS`."""
        return views.overview(self.plugin)

    # Messages of streams, each by the client or worker of the stream

    def prove(self, sender: Sender, /, proof: Any = None, **_: Any) -> None:
        """Learn by what a client proves in requests who it is; see `Identity.learn`."""
        self.plugin.identity.learn(proof, sender)

    def report(
        self,
        sender: Sender,
        /,
        job: Any = None,
        loss: Any = None,
        run: Any = None,
        step: Any = None,
        anew: Any = False,
        **_: Any,
    ) -> None:
        """Record the loss of one iteration, which a worker may report as well."""
        anew = anew is True
        self.plugin.jobs.owned(job, None if sender.worker else sender.comm, run)
        self.plugin.jobs.report(job, loss, step, anew=anew)
        iteration = self.plugin.engine.jobs[job].iteration
        self.plugin.searches.job_reported(job, loss, iteration, anew=anew)

    def expect(
        self, sender: Sender, /, job: Any = None, iterations: Any = None, run: Any = None, **_: Any
    ) -> None:
        """Record the maximum number of remaining iterations; see `ScheduledJobs.expect`."""
        self.plugin.jobs.owned(job, sender.comm, run)
        self.plugin.jobs.expect(job, iterations)

    def kind(
        self, sender: Sender, /, job: Any = None, kind: Any = None, run: Any = None, **_: Any
    ) -> None:
        """Set the `kind` of a `job`, named by a fit in its block `run`."""
        self.plugin.jobs.owned(job, sender.comm, run)
        if (known := read_kind(kind)) is not None:
            self.plugin.run_history.set_kind(job, known)

    def trial(self, sender: Sender, /, **message: Any) -> None:
        """Follow the message of a trial on a worker; see `TrialMessage`."""
        if not sender.worker:
            raise NotAllowed("only workers tell what trials do")
        self.plugin.searches.follower.receive(sender.worker, check_trial(message))

    def enter(self, sender: Sender, /, job: Any = None, run: Any = None, **_: Any) -> None:
        """Record that what the client sends from now on is sent while a block is open."""
        if not self.plugin.jobs.runs(job, run):
            return  # it was left as soon as it was entered
        self.plugin.jobs.owned(job, sender.comm, run)
        self.plugin.jobs.entered[job] = time()

    def mark(
        self, sender: Sender, /, job: Any = None, run: Any = None, number: Any = None, **_: Any
    ) -> None:
        """Record how far the stream of a search's client was read; see `trials`."""
        self.plugin.jobs.owned(job, sender.comm, run)
        if not is_whole(number, 1):
            raise InvalidSetting(f"a mark is a number >= 1, not {shown(number)}")
        self.plugin.searches.mark(job, number)

    def leave(
        self, sender: Sender, /, job: Any = None, run: Any = None, failed: Any = False, **_: Any
    ) -> None:
        """Record that the block of a search was left; see `Searches.leave`."""
        self.plugin.jobs.owned(job, sender.comm, run)
        self.plugin.searches.leave(job, "failed" if failed else "done")
