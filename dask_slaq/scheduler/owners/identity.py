"""Who a client is: the connection that it registered, whatever its messages say.

To whom a client belongs is what it says, or the common name of its TLS certificate, or what a
function of whoever runs the scheduler says of its connection (``slaq.identity``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from distributed import Scheduler
from distributed.comm.addressing import get_address_host
from distributed.comm.core import Comm
from distributed.core import Server

from dask_slaq.core.errors import BROKEN, InvalidSetting, NotAllowed
from dask_slaq.core.settings import is_name, shown
from dask_slaq.plug_ins import load
from dask_slaq.scheduler.hooks import replace


def name_in_certificate(comm: Comm | None) -> str | None:
    """Return the common name in the verified certificate of a peer; None without one."""
    certificate = getattr(comm, "extra_info", {}).get("peercert") or {}
    names = (
        value
        for part in certificate.get("subject", ())
        for key, value in part
        if key == "commonName"
    )
    name: str | None = next(names, None)
    name = (name or "").rstrip("/")  # which stands for a team
    return name if is_name(name) else None


def asked_of(path: str) -> Callable[[Comm | None], str | None]:
    """Return who is at the other end of a connection, by the function at a class path.

    It gets a dict with ``address`` and ``certificate`` (see `ssl.SSLSocket.getpeercert`), and
    returns a name, or None for nobody, which it says of everybody if it raises. `InvalidSetting` is
    raised if there is none: then it would be unknown who is who.
    """
    ask = load("owner", path)
    if not callable(ask):
        raise InvalidSetting(f"slaq.identity: {path} cannot be called")

    known: WeakKeyDictionary[Comm, str] = WeakKeyDictionary()

    def who(comm: Comm | None) -> str | None:
        if comm is None or comm in known:
            return None if comm is None else known[comm]
        certificate = getattr(comm, "extra_info", {}).get("peercert") or {}
        try:
            name = ask({"address": comm.peer_address, "certificate": certificate})
        except BROKEN:
            logger.exception("%s failed; its client is nobody", path)
            return None
        if name is None:
            return None
        if not is_name(name):
            logger.error("%s: %s is no name of an owner; its client is nobody", path, shown(name))
            return None
        known[comm] = name  # asked for each task outside of jobs
        return name

    return who


logger = logging.getLogger(__name__)

#: Argument by which each request says who asks.
_CHANGES = ("steer", "policy", "owner", "limit", "reserve", "unreserve")
_SAID = {"slaq_open": "owner", "slaq_introduce": "owner"} | {f"slaq_{c}": "by" for c in _CHANGES}
#: Connections by the task of the event loop that handles their messages, one after the other.
_connections: WeakKeyDictionary[asyncio.Task[Any], Sender] = WeakKeyDictionary()


class Sender(NamedTuple):
    """Connection on which a message came: as which client or worker it registered, and its comm.

    The name of the other kind is empty. If a task sent a graph, `submitter` is the key of the task;
    `block` is the name in the annotations in which a graph was sent.
    """

    client: str
    worker: str
    comm: Comm
    submitter: Any = None
    block: Any = None

    @property
    def name(self) -> str:
        """Identifier of the client, or address of the worker."""
        return self.client or self.worker

    @property
    def is_open(self) -> bool:
        """Whether it is connected."""
        return not self.comm.closed()


def sender_of_message() -> Sender | None:
    """Return who sent the stream message that is being handled; None outside of a stream.

    Dask passes a handler the names of the connection, and lets the message overwrite them.
    """
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs
        return None
    return None if task is None else _connections.get(task)


def follow_connections(scheduler: Scheduler) -> None:
    """Note by which task the messages of each connection are handled, of open and later ones."""

    def around(plain: Callable[..., Any]) -> Callable[..., Any]:
        async def handle_stream(comm: Comm, extra: dict[str, Any] | None = None) -> None:
            _note(asyncio.current_task(), comm, extra)
            await plain(comm, extra)

        return handle_stream

    def submits(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def update_graph(**message: Any) -> None:
            task, notes = asyncio.current_task(), message.get("annotations")
            if task is not None and (sender := _connections.get(task)) is not None:
                block = notes.get("slaq_job") if isinstance(notes, dict) else None
                submitter = message.get("submitting_task")
                _connections[task] = sender._replace(submitter=submitter, block=block)
            await handler(**message)

        return update_graph

    scheduler.handle_stream = replace(scheduler.handle_stream, around)  # type: ignore[method-assign]
    handlers = scheduler.stream_handlers
    handlers["update-graph"] = replace(handlers["update-graph"], submits)
    for task in asyncio.all_tasks():
        step: Any = task.get_coro()
        while step is not None:
            if getattr(step, "cr_code", None) is Server.handle_stream.__code__:
                known = step.cr_frame.f_locals
                if known["self"] is scheduler:
                    _note(task, known["comm"], known["extra"])
            step = getattr(step, "cr_await", None)


def _note(task: asyncio.Task[Any] | None, comm: Comm, extra: dict[str, Any] | None) -> None:
    names = extra or {}
    sender = Sender(_text(names.get("client")), _text(names.get("worker")), comm)
    if task is not None:
        _connections[task] = sender


def _text(name: object) -> str:
    return name if isinstance(name, str) else ""


class Identity:
    """Identity of the clients of a scheduler. By ``"tls"`` their certificates count.

    `by` may also be the class path of a function, and None to believe clients.

    A request comes on a connection that says nothing of its client. So a client tells the scheduler
    a secret on its stream, and repeats it in requests. `before` is the identity of an earlier
    plugin on this scheduler, whose secrets stay valid. By ``"tls"``, `InvalidSetting` is raised if
    the scheduler can be reached without a certificate.
    """

    def __init__(
        self, scheduler: Scheduler, by: str | None, before: Identity | None = None
    ) -> None:
        tls = by == "tls"
        self.scheduler, self._by = scheduler, by
        self._who: Callable[[Comm | None], str | None] | None = None
        if by is not None:
            self._who = name_in_certificate if tls else asked_of(by)
        self._secrets: dict[str, Sender] = {} if before is None else before._secrets
        self._logged: set[tuple[str, str]] = set()
        addresses = [listener.contact_address for listener in scheduler.listeners]
        open_to_all = [a for a in addresses if not a.startswith(("tls://", "wss://"))]
        if tls and (open_to_all or not addresses):
            raise InvalidSetting(
                "slaq.identity is tls, but the scheduler can be reached without a certificate, at "
                f"{', '.join(open_to_all) or 'no address yet'}: start it with --protocol tls and "
                "certificates, or leave slaq.identity null"
            )

    def learn(self, secret: object, sender: Sender) -> None:
        """Remember the secret of a client, which replaces an earlier one of its connection.

        Raises `NotAllowed` unless it is a new secret of a client.
        """
        # Length of the secrets by which clients prove which of them asks, in characters.
        shortest, longest = 32, 64
        if not (isinstance(secret, str) and shortest <= len(secret) <= longest):
            raise NotAllowed(f"a proof has {shortest} to {longest} characters")
        known = self._secrets.get(secret)
        if not sender.client or (known is not None and known.comm is not sender.comm):
            raise NotAllowed("a proof belongs to the one client that sent it first")
        for other, of in list(self._secrets.items()):
            if not of.is_open or of.comm is sender.comm:
                del self._secrets[other]
        self._secrets[secret] = sender

    async def prove(
        self, secret: object, until: Callable[[Callable[[], object]], Awaitable[object]]
    ) -> Sender:
        """Return the client with this secret, which may arrive a little later than the request.

        `until` waits for a condition. Raises `NotAllowed` if no connected client has the secret.
        """
        if secret is None:
            raise NotAllowed(
                "the request does not prove which client asks: the client runs an older release "
                "of dask_slaq than the scheduler; install the scheduler's there"
            )
        if isinstance(secret, str):
            await until(lambda: secret in self._secrets)
            sender = self._secrets.get(secret)
            if sender is not None and sender.is_open:
                return sender
        raise NotAllowed("the request's proof is none of a connected client")

    def check(
        self, operation: str, comm: Comm, message: dict[str, Any], sender: Sender | None
    ) -> dict[str, Any]:
        """Return the arguments of a request, with who its sender is.

        Raises `NotAllowed` if that is nobody, or somebody else than the client.
        """
        if self._who is None:
            return message
        who = self._who(comm)
        if who is None:
            has_no_name = f"the certificate of {comm.peer_address} has no common name"
            known = has_no_name if self._by == "tls" else f"nobody is at {comm.peer_address}"
            raise NotAllowed(f"{known}: slaq.identity is {self._by}")
        if sender is not None and self._who(sender.comm) != who:
            raise NotAllowed(
                f"the client {shown(sender.client)} is not one of {who}, who asks for it"
            )
        if operation not in _SAID:
            return message
        self._compare(message.get(_SAID[operation]), who)
        return {**message, _SAID[operation]: who}

    @property
    def counts(self) -> bool:
        """Whether connections tell who clients are, whatever these say."""
        return self._who is not None

    def alike(self, one: Comm, other: Comm) -> bool:
        """Return whether two connections are of one machine and, where that counts, of one name."""
        if get_address_host(one.peer_address) != get_address_host(other.peer_address):
            return False
        return self._who is None or self._who(one) == self._who(other)

    def of_client(self, client: str) -> str | None:
        """Return who a connected client is; None if it is believed."""
        comm = getattr(self.scheduler.client_comms.get(client), "comm", None)
        return None if self._who is None else self._who(comm)

    def _compare(self, claimed: object, who: str) -> None:
        """Log, once, that a client says to be somebody else; ``ann@desk`` is ann."""
        name = claimed.partition("@")[0] if isinstance(claimed, str) else claimed
        if not claimed or who in (claimed, name):
            return
        claim = shown(claimed), who
        # Maximum number of clients' claims that are logged.
        if claim not in self._logged and len(self._logged) < 1000:
            self._logged.add(claim)
            logger.warning(
                "a client says that it is %s; its connection is of %s, which counts", *claim
            )


#: Clients of which those that left are still known.
MOST_CLIENTS = 1000


@lru_cache(1000)  # called for each task outside of jobs
def _unknown_at(address: str) -> str:
    return f"unknown@{get_address_host(address)}"


class ClientOwners:
    """Owner of each client: of its last job, or as it said.

    `name_of` returns whom the certificate of a client names, None if that does not count. `settle`
    is called before the owner of a client changes.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name_of: Callable[[str], str | None],
        settle: Callable[[], object],
    ) -> None:
        self._scheduler, self._name_of, self._settle = scheduler, name_of, settle
        self._owner: dict[str, str] = {}

    def introduce(self, client: str, owner: str) -> None:
        """Record the owner of a client that has opened no job."""
        if client not in self._owner:
            self.know(client, owner)

    def know(self, client: str, owner: str) -> None:
        """Record the owner of a job that a client opens."""
        if self._owner.get(client) != owner:
            self._settle()  # what it has used until now
        if len(self._owner) >= MOST_CLIENTS:
            for gone in self._owner.keys() - self._scheduler.clients.keys():
                del self._owner[gone]
        self._owner[client] = owner

    def named(self, client: str) -> str:
        """Return the owner of a client, empty if it has said none."""
        return self._name_of(client) or self._owner.get(client, "")

    def of(self, client: str) -> str:
        """Return the owner of a client's jobs; by its machine if the client has said none.

        Otherwise all notebooks together would be one owner, under one limit.
        """
        if owner := self.named(client):
            return owner
        comm = getattr(self._scheduler.client_comms.get(client), "comm", None)
        return "unknown" if comm is None else _unknown_at(comm.peer_address)
