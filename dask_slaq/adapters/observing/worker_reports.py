"""Reports from tasks on workers to the block in which the fit was called.

They travel as Dask's events, without a plugin, and arrive before the result of their task. Anybody
may publish under a topic, so each is signed with a secret that the tasks of the fit alone have.
"""

from __future__ import annotations

import contextlib
import contextvars
import hmac
import itertools
import logging
import math
import secrets
import threading
import uuid
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any
from weakref import WeakValueDictionary, ref

from dask_slaq.adapters.observing.session import ReportSession, log_stop, pass_on
from dask_slaq.core.errors import StopTraining
from dask_slaq.core.jobs.reports import as_loss, as_step
from dask_slaq.core.settings import LOSS_TOPIC

logger = logging.getLogger(__name__)

# Tasks that train together, one per worker, must end after the same round, or the last ones would
# wait forever for the others. They run in lockstep: none can be more than a round ahead. So the
# client first lets each task wait at its next round, which tells how far it was (`hold`), and then
# names the round after which all end (`end`).


@dataclass
class Gate:
    """State of one run on one worker."""

    #: Latest round that passed before the gate was held.
    passed: int = -1
    #: Whether the next round waits for `end`.
    held: bool = False
    #: Round with which the run ends; infinity if it does not.
    end: float | None = None


_changed = threading.Condition()
# By mailbox and worker: several workers may share this process.
_gates: OrderedDict[tuple[str, str | None], Gate] = OrderedDict()


def ends_with(address: Address, number: int, patience: float = 60.0) -> bool:
    """Return whether the run that reports to `address` ends with round `number`, counted from 0.

    Call it in a task, once per round. It returns at once unless the run is being stopped. After
    seconds of `patience` the task trains on, since its client must be gone.
    """
    with _changed:
        gate = _gate(address.inbox, worker_here())
        if not gate.held:
            gate.passed = number
            return False
        if not _changed.wait_for(lambda: gate.end is not None, patience):
            gate.end = math.inf
        return gate.end is not None and number >= gate.end


def is_stopping(address: Address) -> bool:
    """Return whether the run that reports to `address` was stopped. Call it in a task."""
    with _changed:
        return _gate(address.inbox, worker_here()).held


def hold(inbox: str, dask_worker: Any = None) -> int:
    """Let the next round on a worker wait for `end`; return the latest round that passed, or -1.

    ``Client.run`` passes `dask_worker`. It is None for tasks outside workers.
    """
    with _changed:
        gate = _gate(inbox, dask_worker)
        gate.held = True
        return gate.passed


def end(inbox: str, number: float, dask_worker: Any = None) -> None:
    """Name the round with which a run ends, infinity to train on. See `hold`."""
    with _changed:
        _gate(inbox, dask_worker).end = number
        _changed.notify_all()


async def end_on_workers(client: Any, inbox: str) -> None:
    """End a run on all workers after the same round, in its client's event loop. Never raises."""
    number = math.inf
    try:
        passed = await client.run(hold, inbox, on_error="return")
        errors = [answer for answer in passed.values() if not isinstance(answer, int)]
        if errors:
            logger.warning("a fit on workers cannot be stopped and goes on: %r", errors[0])
        else:
            number = max(passed.values(), default=-1) + 1
    except Exception as error:
        logger.warning("a fit on workers cannot be stopped and goes on: %r", error)
    try:
        await client.run(end, inbox, number, on_error="ignore")
    except Exception as error:
        logger.warning("workers were not told when their fit ends: %r", error)


def _gate(inbox: str, worker: Any) -> Gate:
    """Return the gate of a run on a worker, or outside workers if that is None.

    A process remembers those of the last thousand.
    """
    gate = _gates.setdefault((inbox, worker and worker.address), Gate())
    if len(_gates) > 1000:
        _gates.popitem(last=False)
    return gate


def worker_here() -> Any:
    """Return the worker that runs this task, or None outside a worker."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None


_inboxes: WeakValueDictionary[str, Mailbox] = WeakValueDictionary()
_thread = threading.local()


@dataclass(frozen=True)
class Address:
    """Picklable address of a `Mailbox`, for tasks that report losses."""

    #: Name of the mailbox.
    inbox: str
    #: Event topic that the mailbox's client has subscribed to; None without a client.
    topic: str | None
    #: With which losses are signed.
    secret: bytes = field(repr=False)

    @property
    def fields(self) -> tuple[str, str | None, bytes]:
        """What `Address` is called with, for functions that are pickled by value."""
        return self.inbox, self.topic, self.secret

    def report(self, loss: float, *, step: int | None = None, with_result: bool = False) -> None:
        """Send a loss from inside a task. Takes microseconds and never raises.

        `step` is the number of its iteration, if that is named.

        At the end of a task, send it `with_result` in one message. A message of its own would
        delay the result, since a worker pauses between two messages.
        """
        try:
            message = {"action": LOSS_TOPIC, "inbox": self.inbox, "loss": float(loss)}
            if step is not None:
                message["step"] = step
            worker = worker_here()
            if worker is None:  # a local scheduler runs tasks in threads of this process
                _deliver(message)
                return
            message |= self._signed(message)
            if self.topic is not None and with_result:
                worker.loop.add_callback(_send_with_next, worker, self.topic, message)
            elif self.topic is not None:
                worker.log_event(self.topic, message)
        except Exception:  # not a number, or a closing worker: must not fail the task
            pass

    def _signed(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return from which thread a message is, its number there, and a proof of all of it."""
        if not hasattr(_thread, "name"):
            _thread.name, _thread.count = uuid.uuid4().hex, itertools.count()
        origin = {"thread": _thread.name, "number": next(_thread.count)}
        return {**origin, "proof": self.prove({**message, **origin})}

    def prove(self, message: dict[str, Any]) -> str:
        """Return the proof of what a message says."""
        parts = (message.get(key) for key in ("inbox", "loss", "step", "thread", "number"))
        return blake2b(repr(tuple(parts)).encode(), key=self.secret, digest_size=16).hexdigest()


@dataclass(frozen=True)
class Reporter:
    """Picklable function for the tasks of a job: ``report(loss)``. Made by `Job.reporter`."""

    job: str
    address: Address  # where the losses go

    def __call__(self, loss: float, step: int | None = None) -> None:
        """Report the loss of an iteration of the job without blocking; see `Job.report`.

        Raises `NonFiniteLoss` or `InvalidSetting`, and nothing is reported, or `StopTraining` after
        the report if the job was stopped, and its workers know.
        """
        self.address.report(as_loss(loss), step=as_step(step))
        if is_stopping(self.address):
            raise StopTraining(f"job {self.job!r} was stopped: end the training loop")


class Mailbox:
    """Receiver of losses that tasks report to a block, while something keeps a reference to it.

    Create it in the thread that calls ``fit``, and put its `route` into the tasks. The block's
    ``report`` is called in the thread of the client's event loop, in the order in which the losses
    arrive, and in a copy of the context in which the mailbox was created.

    A report that raises `StopTraining` ends the fit: tasks of `library` must ask `ends_with` or
    `is_stopping`.
    """

    def __init__(self, block: ReportSession, library: str) -> None:
        from distributed import default_client

        self._block = block
        self._library = library
        self._context = contextvars.copy_context()
        self._client: Any = lambda: None  # a weak reference
        self._stopped = False
        topic = None
        with contextlib.suppress(ValueError):  # there is no client
            client = default_client()
            self._client = ref(client)
            # Not the client's own topic, on which Dask logs an event after the client has gone.
            topic = f"{LOSS_TOPIC}-{client.id}"
            client.subscribe_topic(topic, _hear)
        self.route = Address(uuid.uuid4().hex, topic, secrets.token_bytes(16))
        self._latest: dict[str, int] = {}  # number of the last message, by thread
        _inboxes[self.route.inbox] = self

    def is_of_a_task(self, message: dict[str, Any]) -> bool:
        """Return whether a task of the fit sent a message, and not somebody who has read others."""
        proof = message.get("proof")
        if not (isinstance(proof, str) and proof.isascii()):
            return False
        if not hmac.compare_digest(self.route.prove(message), proof):
            return False
        thread, number = message["thread"], message["number"]
        if number <= self._latest.get(thread, -1):
            return False  # it is repeated
        self._latest[thread] = number
        return True

    def take(self, loss: float, step: int | None = None) -> None:
        """Report a loss to the block if it is still open."""
        if self._block.open and not self._context.copy().run(pass_on, self._block, loss, step):
            self._stop()

    def _stop(self) -> None:
        if self._stopped:
            return
        self._stopped = True
        log_stop(self._block, self._library)
        inbox, client = self.route.inbox, self._client()
        if client is None:  # a local scheduler runs tasks in threads of this process
            end(inbox, hold(inbox) + 1)
        else:
            client.loop.add_callback(end_on_workers, client, inbox)


def _hear(event: tuple[float, Any]) -> None:
    _, message = event
    if isinstance(message, dict) and message.get("action") == LOSS_TOPIC:
        inbox = _inboxes.get(str(message.get("inbox")))
        if inbox is not None and inbox.is_of_a_task(message):
            _deliver(message)


def _deliver(message: dict[str, Any]) -> None:
    inbox = _inboxes.get(message["inbox"])
    if inbox is not None:
        inbox.take(message["loss"], message.get("step"))


def _send_with_next(worker: Any, topic: str, message: dict[str, Any]) -> None:
    """Do what ``Worker.log_event`` does, but leave it to the next message to wake the sender."""
    stream = worker.batched_stream
    if hasattr(stream, "buffer"):
        stream.buffer.append({"op": "log-event", "topic": topic, "msg": message})
    else:
        worker.log_event(topic, message)
