"""Settings of notices: who is told of which alerts, and by what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import ALERTS, shown

#: Sinks that were settings, and what each is now.
_EXAMPLES = {
    "webhook": "{class: slaq_webhook.Webhook, url: ...}",
    "command": "{class: slaq_command.Command, words: [...]}",
}


class NoticeTerms(NamedTuple):
    """By what an owner is told, and of which events. The class path may hold secrets."""

    call: Any
    events: frozenset[str]

    def __repr__(self) -> str:
        return f"NoticeTerms(..., events={sorted(self.events)})"


def check_notify(value: object) -> dict[str, NoticeTerms]:
    """Return ``slaq.notify`` by owner, or raise `InvalidSetting`, which does not show secrets."""
    if not isinstance(value, Mapping):
        raise InvalidSetting("notify must be a mapping of owner to what to call, and events")
    return {str(owner): _terms(owner, given) for owner, given in value.items()}


def _terms(owner: object, given: Any) -> NoticeTerms:
    if not isinstance(owner, str) or not owner:
        raise InvalidSetting(f"notify must name owners, or default, not {shown(owner)}")
    mapping = given if isinstance(given, Mapping) else {}
    for name, call in _EXAMPLES.items():
        if name in mapping:
            raise InvalidSetting(
                f"notify of {shown(owner)} has a {name}, which is a plug-in now: copy "
                f"examples/sinks/slaq_{name}.py to where the scheduler runs, and write call: {call}"
            )
    if not mapping.get("call") or not mapping.keys() <= {"call", "events"}:
        raise InvalidSetting(
            f"notify of {shown(owner)} must be a mapping with call, the class path of a sink, "
            "and events if not all but audit are told"
        )
    return NoticeTerms(mapping["call"], _events(owner, mapping.get("events")))


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
