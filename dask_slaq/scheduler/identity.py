"""Who a client is: what it says, or the common name of its TLS certificate (``slaq.identity``)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from dask_slaq.core.errors import InvalidSetting, NotAllowed
from dask_slaq.core.settings import LONGEST_NAME, shown

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.comm.core import Comm

__all__ = ["Identity"]

logger = logging.getLogger(__name__)

#: Argument by which each request says who asks.
_SAID = dict.fromkeys(("slaq_open", "slaq_introduce"), "owner") | dict.fromkeys(
    ("slaq_steer", "slaq_policy", "slaq_owner", "slaq_limit"), "by"
)
#: Maximum number of clients' claims that are logged.
_MOST_LOGGED = 1000


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
    return name if name and len(name) <= LONGEST_NAME else None


class Identity:
    """Identity of the clients of a scheduler. With `tls` their certificates count.

    Then `InvalidSetting` is raised if the scheduler can be reached without a certificate.
    """

    def __init__(self, scheduler: Scheduler, tls: bool) -> None:
        self.scheduler, self.tls = scheduler, tls
        self._logged: set[tuple[str, str]] = set()
        addresses = [listener.contact_address for listener in scheduler.listeners]
        open_to_all = [a for a in addresses if not a.startswith(("tls://", "wss://"))]
        if tls and (open_to_all or not addresses):
            raise InvalidSetting(
                "slaq.identity is tls, but the scheduler can be reached without a certificate, at "
                f"{', '.join(open_to_all) or 'no address yet'}: start it with --protocol tls and "
                "certificates, or leave slaq.identity null"
            )

    def check(self, operation: str, comm: Comm, message: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a request, with whom its sender's certificate names.

        Raises `NotAllowed` if that names nobody, or the request names a client of somebody else.
        """
        if not self.tls:
            return message
        who = name_in_certificate(comm)
        if who is None:
            raise NotAllowed(
                f"the certificate of {comm.peer_address} has no common name: slaq.identity is tls"
            )
        client = message.get("client")
        if isinstance(client, str) and client and self.of_client(client) not in (None, who):
            raise NotAllowed(f"the client {shown(client)} is not one of {who}, who asks for it")
        if operation not in _SAID:
            return message
        self._compare(message.get(_SAID[operation]), who)
        return {**message, _SAID[operation]: who}

    def of_client(self, client: str) -> str | None:
        """Return whom the certificate of a connected client names; None unless it is `tls`."""
        comm = getattr(self.scheduler.client_comms.get(client), "comm", None)
        return name_in_certificate(comm) if self.tls else None

    def _compare(self, said: object, who: str) -> None:
        """Log, once, that a client says to be somebody else; ``ann@desk`` is ann."""
        if not said or (isinstance(said, str) and said.partition("@")[0] == who) or said == who:
            return
        claim = shown(said), who
        if claim not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(claim)
            logger.warning(
                "a client says that it is %s; its certificate names %s, which counts", *claim
            )
