"""Settings of notices: who is told of which alerts, and how."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import ALERTS, shown

__all__ = ["NoticeTerms", "check_notify"]


class NoticeTerms(NamedTuple):
    """How an owner is told, and of which events. Addresses and commands may hold secrets."""

    webhook: str | None
    command: tuple[str, ...] | None
    events: frozenset[str]
    call: str | None = None  # class path of a function of somebody else

    def __repr__(self) -> str:
        return f"NoticeTerms(..., events={sorted(self.events)})"


def check_notify(value: object) -> dict[str, NoticeTerms]:
    """Return the settings of notices by owner, from ``slaq.notify``, or raise `InvalidSetting`.

    The message shows neither addresses nor commands.
    """
    if not isinstance(value, Mapping):
        raise InvalidSetting("notify must be a mapping of owner to a webhook or a command")
    return {str(owner): _terms(owner, given) for owner, given in value.items()}


def _terms(owner: object, given: Any) -> NoticeTerms:
    if not isinstance(owner, str) or not owner:
        raise InvalidSetting(f"notify must name owners, or default, not {shown(owner)}")
    known = ("webhook", "command", "events", "call")
    wrong = not isinstance(given, Mapping) or [key for key in given if key not in known]
    if wrong or not (given.get("webhook") or given.get("command") or given.get("call")):
        raise InvalidSetting(
            f"notify of {shown(owner)} must be a mapping with a webhook, a command, the class path "
            "of what to call or several of these, and events if not all but audit are told"
        )
    webhook, command, events, call = (given.get(name) for name in known)
    if webhook is not None and not _is_web(webhook):
        raise InvalidSetting(
            f"the webhook of {shown(owner)} must be an address that starts with http:// or https://"
        )
    return NoticeTerms(webhook, _words(owner, command), _events(owner, events), call)


def _is_web(webhook: object) -> bool:
    if not isinstance(webhook, str) or not webhook.isprintable() or " " in webhook:
        return False
    try:
        parts = urlsplit(webhook)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # such as a port that is no number
        return False


def _words(owner: object, command: object) -> tuple[str, ...] | None:
    if command is None:
        return None
    try:
        words = shlex.split(command) if isinstance(command, str) else list(command)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        words = []
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise InvalidSetting(
            f"the command of {shown(owner)} must be a text such as 'mail -s dask ops', or a list "
            "of words"
        )
    return tuple(words)


def _events(owner: object, events: Any) -> frozenset[str]:
    if events is None:
        return frozenset(ALERTS) - {"audit"}
    if isinstance(events, str) or not isinstance(events, list | tuple):
        events = [events]
    for event in events:
        if event not in ALERTS:
            raise InvalidSetting(
                f"{shown(event)} is not an event of which {shown(owner)} may be told; events are: "
                + ", ".join(ALERTS)
            )
    return frozenset(events)
