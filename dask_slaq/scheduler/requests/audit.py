"""Audit: who changed what on a running scheduler, from where, and whether that was accepted."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import strftime, time
from typing import Any

from distributed import Scheduler

from dask_slaq.core.settings import AUDIT_TOPIC, is_name, shown
from dask_slaq.scheduler.current import current_plugin
from dask_slaq.scheduler.owners.reserved import local

logger = logging.getLogger(__name__)

#: Maximum number of characters of what is said of one change.
MOST_LINE_CHARACTERS = 2000


def audit(
    scheduler: Scheduler,
    what: str,
    *,
    by: object = "",
    where: str = "",
    job: object = "",
    refused: object = None,
    known: object = "",
) -> None:
    """Record one change, or a refused one: a line in log and run history, an alert, an event.

    `what` is the object of "asked to". `by` and `job` are as a client gave them, and `refused` is
    the reason why it was refused. `known` is who asks, if nobody can make that up: whom to tell.
    """
    who, of = _clean(by) or "somebody", _clean(job)
    ended = f"refused: {refused}" if refused is not None else "done"
    message = f"{who}{where and f' at {where}'} asked to {what}: {ended}"
    message = message[:MOST_LINE_CHARACTERS]
    logger.log(logging.INFO if refused is None else logging.WARNING, "%s", message)
    event = {
        "event": "audit",
        "at": time(),
        "when": strftime("%Y-%m-%d %H:%M:%S"),
        "by": who,
        "where": where,
        "what": what[:MOST_LINE_CHARACTERS],
        "job": of,
        "owner": _clean(known),
        "refused": None if refused is None else str(refused)[:MOST_LINE_CHARACTERS],
        "message": message,
    }
    scheduler.log_event(AUDIT_TOPIC, event)
    if (plugin := current_plugin(scheduler)) is not None:
        plugin.audited.append(event)
        plugin.run_history.keep_event("audit", event)
        plugin.alert(event)


def _clean(text: object) -> str:
    """Return a client's text as it is, unless it would spoil a line of the log; empty for none."""
    if is_name(text):
        return text
    return shown(text) if text else ""


def in_words(operation: str, message: Mapping[str, Any]) -> str:
    """Return what the request `operation` asks for. Its arguments may hold anything."""
    if operation == "slaq_policy":
        return f"decide by {shown(message.get('policy'))}"
    if operation == "slaq_limit":
        return f"limit {shown(message.get('label'))} to {shown(message.get('most'))}"
    if operation == "slaq_unreserve":
        return f"remove reservation {shown(message.get('number'))}"
    if operation == "slaq_reserve":
        what = f"reserve {shown(message.get('threads'))} threads for {shown(message.get('owner'))}"
        return f"{what} from {local(message.get('begin'))} to {local(message.get('end'))}"
    of = "owner" if operation == "slaq_owner" else "job"
    known = (of, "what", "by")
    words = [_clean(message.get("what")) or "set", of, shown(message.get(of))]
    words += (f"{key}={shown(value)}" for key, value in message.items() if key not in known)
    return " ".join(words)
