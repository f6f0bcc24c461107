"""Checks of settings, names and resources, for client and scheduler, and names that both use."""

from __future__ import annotations

import math
import reprlib
import shlex
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np

from dask_slaq.core.errors import InvalidSetting

#: Maximum number of characters in the name of a job.
LONGEST_NAME = 256
#: Messages by which the scheduler asks a client to stop one of its jobs, and tells it that tasks
#: come from outside of an open block, that some can never start, or that trials do not report as
#: they should.
STOP, OUTSIDE, BLOCKED, SILENT = "slaq-stop", "slaq-outside", "slaq-blocked", "slaq-silent"
#: Message of an alert to a client that follows them, and topic of their events for anybody: a job
#: reached its target, converged, diverged, and so on.
ALERT, ALERT_TOPIC = "slaq-alert", "slaq"
#: Topic of events on who changed what.
AUDIT_TOPIC = "slaq-audit"
#: Topic of the events by which workers tell that a task reports, and belongs to no search.
ASTRAY_TOPIC = "slaq-astray"
#: What tasks report to the block of their client, and beginning of the topics for it.
LOSS_TOPIC = "slaq-loss"
#: Name of the stand-in for a plugin that could not start, and key of the reason in the scheduler's
#: metadata.
NOT_STARTED = "slaq-not-started"
#: Alerts that a job ended; the last one if its client was lost.
ENDS = ("done", "stopped", "failed", "lost")
#: All kinds of alerts.
ALERTS = (
    *("reached", "late", "converged", "stalled", "diverged", "silent", "blocked"),
    *("budget", *ENDS, "fell back", "audit"),
)

#: Longest time in seconds that a setting may name.
MOST_SECONDS = 86_400e3
#: What the loss reduction of a job may be divided by; see `dask_slaq.core.forecast.quality`.
NORMALIZERS = ("range", "largest-change")

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


def shown(value: object) -> str:
    """Return the repr of a value, shortened to at most 100 characters."""
    if isinstance(value, bytes | bytearray):
        value = value[:100]
    try:
        return _repr.repr(value)[:100]
    except Exception:  # for example, an int with too many digits
        return f"a {type(value).__name__}"


def check_name(name: object) -> None:
    """Raise `InvalidSetting` unless a value may be the name of a job."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or name.startswith("other:"):
        raise InvalidSetting(
            f"a job's name must be a string of 1 to {LONGEST_NAME} characters that does not start "
            f"with 'other:', not {shown(name)}"
        )


def check_stage(name: object) -> None:
    """Raise `InvalidSetting` unless a value may be the name of a stage."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidSetting(
            f"a stage's name must be a string of 1 to {LONGEST_NAME} characters, not {shown(name)}"
        )


def check_owner(owner: object) -> str:
    """Return the name of an owner, empty for None, or raise `InvalidSetting`.

    A slash at its end is left out: such a name stands for a team in tables.
    """
    if owner is None:
        return ""
    found = owner.rstrip("/") if isinstance(owner, str) else ""
    if not 0 < len(found) <= LONGEST_NAME:
        raise InvalidSetting(
            f"owner must be a string of 1 to {LONGEST_NAME} characters, not {shown(owner)}"
        )
    return found


def check_limits(limits: object) -> dict[str, int]:
    """Return limits as a dict of label to the most tasks at once, or raise `InvalidSetting`."""
    if not isinstance(limits, Mapping):
        raise InvalidSetting(
            f"limits must be a mapping like {{'database': 8}}, not {shown(limits)}"
        )
    for label, most in limits.items():
        number = isinstance(most, int) and not isinstance(most, bool)
        known = isinstance(label, str) and 0 < len(label) <= LONGEST_NAME and label.isprintable()
        if not (known and number and 1 <= most <= 1_000_000):
            raise InvalidSetting(
                "limits must map labels to numbers of tasks at once, whole and from 1 to 1000000, "
                f"not {shown(label)} to {shown(most)}"
            )
    return dict(limits)


def check_resources(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return resources as a dict of name to amount, empty for None, or raise `InvalidSetting`."""
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise InvalidSetting(
            f"resources must be a mapping like {{'GPU': 1}}, not {shown(resources)}"
        )
    for name, amount in resources.items():
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not (isinstance(name, str) and number and math.isfinite(amount) and amount > 0):
            raise InvalidSetting(
                f"resources must map names to amounts > 0, not {shown(name)} to {shown(amount)}"
            )
    return dict(resources)


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False


def is_whole(value: object, least: int) -> bool:
    """Return whether a value is a whole number of at least `least`; booleans are not."""
    return is_number(value) and least <= value == int(value)  # type: ignore[operator, call-overload]


def check_latest(latest: float) -> None:
    """Raise `InvalidSetting` unless `latest` is a factor of the fair time."""
    number = isinstance(latest, int | float) and not isinstance(latest, bool)
    if not (number and latest >= 1):
        raise InvalidSetting(
            f"latest must be a factor >= 1 of the fair time, inf for none, not {shown(latest)}"
        )


def check_engine_settings(
    epoch: float, normalizer: str, floor: float, move_pause: float, latest: float
) -> None:
    """Raise `InvalidSetting` if a setting of an engine is invalid. See `Engine`."""
    if not (epoch > 0 and math.isfinite(epoch)):
        raise InvalidSetting(f"epoch must be a positive number of seconds, not {epoch!r}")
    if not 0 <= floor <= 1:
        raise InvalidSetting(f"floor must be a fraction in [0, 1], not {floor!r}")
    check_latest(latest)
    if normalizer not in NORMALIZERS:
        allowed = ", ".join(NORMALIZERS)
        raise InvalidSetting(f"normalizer must be one of {allowed}, not {normalizer!r}")
    if not (move_pause >= 0 and math.isfinite(move_pause)):
        raise InvalidSetting(f"move_pause must be seconds >= 0, not {move_pause!r}")


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
