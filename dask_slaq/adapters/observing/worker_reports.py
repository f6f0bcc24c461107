"""Send losses from tasks on workers to the session in which the fit was called.

The thread that fits makes a `Mailbox`; its `Address`, a few bytes, goes into the tasks. In a task
``address.report(loss)`` becomes an event on the scheduler, which passes it on to the client that
waits, and there it reaches the session. All of this is Dask's own machinery: neither side needs a
plugin, and a report arrives before the result of the task that sent it.
"""

from __future__ import annotations

import contextvars
import uuid
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from dask_slaq.adapters.observing.session import ReportSession, pass_on

_inboxes: WeakValueDictionary[str, Mailbox] = WeakValueDictionary()
_ACTION = "slaq-loss"


@dataclass(frozen=True)
class Address:
    """Where the losses of some tasks go. Goes into the tasks; can be pickled.

    Attributes
    ----------
    inbox : str
        Name of the inbox.
    topic : str or None
        Topic of events that the inbox's client listens to; None without a client.
    """

    inbox: str
    topic: str | None

    def report(self, loss: float, *, with_result: bool = False) -> None:
        """Send a loss from inside a task; microseconds, and never an error.

        Parameters
        ----------
        loss : float
        with_result : bool, optional
            For the last act of a task: the loss travels in one message with the result. Sent on its
            own it would hold that up, as a worker waits between two messages.
        """
        try:
            message = {"action": _ACTION, "inbox": self.inbox, "loss": float(loss)}
            worker = _worker()
            if worker is None:  # a scheduler without workers: threads of this process
                _deliver(message)
            elif self.topic is not None and with_result:
                worker.loop.add_callback(_send_with_next, worker, self.topic, message)
            elif self.topic is not None:
                worker.log_event(self.topic, message)
        except Exception:  # a loss that is no number, a worker that closes: no task's concern
            pass


class Mailbox:
    """What takes in losses from tasks for a block, for as long as somebody holds on to it.

    Parameters
    ----------
    block : Block
        Its ``report`` is called in the thread of the client's event loop, in the order in which
        the losses came in, and in a copy of the context in which the inbox was made.

    Attributes
    ----------
    route : Route
        To be given to tasks.
    """

    def __init__(self, block: ReportSession) -> None:
        self._block = block
        self._context = contextvars.copy_context()
        self.route = Address(uuid.uuid4().hex, _subscribe())
        _inboxes[self.route.inbox] = self

    def take(self, loss: float) -> None:
        """Hand a loss to the block, if it is still open."""
        if self._block.open:
            self._context.copy().run(pass_on, self._block, loss)


def _subscribe() -> str | None:
    """Let the current client, if there is one, listen to a topic of its own."""
    from distributed import default_client

    try:
        client = default_client()
    except ValueError:
        return None
    # Not the topic that Dask names after the client: it gets an event when the client has gone.
    topic = f"{_ACTION}-{client.id}"
    client.subscribe_topic(topic, _hear)
    return topic


def _hear(event: tuple[float, Any]) -> None:
    _, message = event
    if isinstance(message, dict) and message.get("action") == _ACTION:
        _deliver(message)


def _deliver(message: dict[str, Any]) -> None:
    inbox = _inboxes.get(message["inbox"])
    if inbox is not None:
        inbox.take(message["loss"])


def _send_with_next(worker: Any, topic: str, message: dict[str, Any]) -> None:
    """What `Worker.log_event` does, without waking what sends: the next message does that."""
    stream = worker.batched_stream
    if hasattr(stream, "buffer"):
        stream.buffer.append({"op": "log-event", "topic": topic, "msg": message})
    else:
        worker.log_event(topic, message)


def _worker() -> Any:
    """Return the worker that this task runs on."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None
