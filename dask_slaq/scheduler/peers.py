"""Who is at the other end of a connection, by its certificate or by a function of somebody else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from dask_slaq.core.errors import BROKEN, InvalidSetting
from dask_slaq.core.settings import is_name, shown
from dask_slaq.plug_ins import load

if TYPE_CHECKING:
    from distributed.comm.core import Comm

logger = logging.getLogger(__name__)


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
