"""Events of a recording: their fields, and validation of events read from a file.

An event is a dict of plain values that JSON represents without loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.job_settings import OF_ENGINE
from dask_slaq.core.owner_terms import OwnerTerms

__all__ = [
    "CALLS",
    "EVENTS",
    "MAY_HOLD",
    "SETTINGS",
    "VERSION",
    "BadEvent",
    "Call",
    "Event",
    "check",
    "read_settings",
    "read_terms",
    "write_settings",
    "write_terms",
]

Event = dict[str, Any]

#: Settings of a job that events hold, null for none; and those that came later, which they hold if
#: they are set, null for inf. The last iteration has an event of its own.
SETTINGS = ("weight", "min_share", "max_share", "target")
LATER = tuple(name for name in OF_ENGINE if name not in (*SETTINGS, "max_iter"))

#: Version of the format of events, and of the rules by which decisions follow from them.
VERSION = 11


class BadEvent(SlaqError, ValueError):
    """Raised for an event that no recorder writes, or that comes in the wrong place."""


class Allowed(NamedTuple):
    """Set of allowed values of a field: a description for messages, and a test."""

    words: str
    test: Callable[[Any], bool]


def _number(low: float, high: float, *, null: bool = False) -> Allowed:
    """Allow numbers from `low` to `high`, which excludes nan and integers too large for a float."""

    def test(value: Any) -> bool:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return null and value is None
        return low <= value <= high

    return Allowed(f"a number from {low:g} to {high:g}" + (" or null" if null else ""), test)


def _whole(low: int, high: int) -> Allowed:
    number = _number(low, high)
    return Allowed("a whole " + number.words, lambda v: isinstance(v, int) and number.test(v))


def _mapping(of: Allowed) -> Allowed:
    def test(value: Any) -> bool:
        return isinstance(value, dict) and all(map(of.test, value.values()))

    return Allowed(f"an object, each value of which is {of.words}", test)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _owner_terms(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 2):
        return False
    return _number(1e-6, 1e6).test(value[0]) and _number(1e-6, 1e6, null=True).test(value[1])


def _grant(value: Any) -> bool:
    fields = {"share": _AMOUNT, "index": _ANY, "tokens": _ANY, "workers": _mapping(_AMOUNT)}
    return isinstance(value, dict) and all(
        allowed.test(value[name]) for name, allowed in fields.items() if name in value
    )


def _list_of(allowed: Allowed, value: Any) -> bool:
    return isinstance(value, list) and all(map(allowed.test, value))


def _increasing(value: Any) -> bool:
    return _list_of(_RUN, value) and all(one < other for one, other in pairwise(value))


def _is_kind(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("name"), str)
        and isinstance(value.get("features"), dict)
        and all(map(_ANY.test, value["features"].values()))
    )


_TEXT = Allowed("a text", lambda value: isinstance(value, str))
_FLAG = Allowed("true or false", lambda value: isinstance(value, bool))
_ANY = Allowed(
    "a number", lambda value: isinstance(value, int | float) and not isinstance(value, bool)
)
# Seconds on the recorder's clock. Adding an epoch to a far larger time would not change it.
_TIME = _number(0, 1e10)
_AMOUNT, _COUNT = _number(0, 1e9), _number(0, 1e12)
# Older releases wrote a little less than 0 where clocks were read out of order.
_IDLE = _number(-1, 1e10)
_LOSS = _number(-1e300, 1e300)
_BYTES = _number(0, 1e18)
_LATEST = _number(1, 1e300, null=True)  # null for no promise
_SETTING = _number(-1e300, 1e300, null=True)
_RUN = _whole(0, 10**12)
_LIKE = Allowed("a list of numbers of past runs", lambda value: _list_of(_RUN, value))
_TERMS = Allowed("a list of a weight and a limit or null", _owner_terms)
_KIND = Allowed("a name and features with their numbers", _is_kind)
#: Required fields of each kind of event. `time` is in seconds on the caller's clock.
EVENTS: dict[str, dict[str, Allowed]] = {
    # Start of a recording, with the settings of the engine.
    "start": {
        "time": _TIME, "version": _whole(1, 1_000_000), "policy": _TEXT,
        "epoch": _number(1e-3, 86_400), "normalizer": _TEXT, "floor": _number(0, 1),
        "strict": _FLAG, "move_pause": _number(0, 86_400), "predictor": _TEXT,
    },
    "arrive": {"time": _TIME, "job": _TEXT, "reports": _FLAG, **dict.fromkeys(SETTINGS, _SETTING)},
    # Tasks of a job that ended since its last `tasks` event: their number, their core-seconds in
    # all, and the most tasks that were ready or running at once. Negative seconds correct those of
    # gangs, which were charged while they ran.
    "tasks": {
        "job": _TEXT, "count": _whole(0, 10**12), "seconds": _number(-1e12, 1e12),
        "at_once": _COUNT,
    },
    # The loss of an iteration, null for one that is nan or infinite.
    "report": {"time": _TIME, "job": _TEXT, "loss": _number(-1e300, 1e300, null=True)},
    # Only up to version 3: a job was inspected, which changed decisions at the time.
    "taken": {},
    "recomputed": {},
    # All settings of a running job, after some were changed.
    "set": {"job": _TEXT, **dict.fromkeys(SETTINGS, _SETTING)},
    # The kind of a running job became known; `like` as in `arrive`.
    "kind": {"job": _TEXT, "kind": _KIND, "like": _LIKE},
    # A decision: `threads` of all workers, and the grants that changed.
    "decide": {
        "time": _TIME, "threads": _whole(0, 10**9),
        "grants": Allowed(
            "an object of grants",
            lambda value: isinstance(value, dict) and all(map(_grant, value.values())),
        ),
    },
    "leave": {"time": _TIME, "job": _TEXT},
    # A past run that forecasts draw on, with its number. It comes before the first job like it.
    "past_run": {
        "run": _whole(0, 10**12), "job": _TEXT, "kind": _KIND,
        "iteration": Allowed("a list of whole numbers", _increasing),
        "loss": Allowed("a list of losses", lambda value: _list_of(_LOSS, value)),
        "iterations": _whole(0, 10**12), "outcome": _TEXT,
        "work": _number(0, 1e300, null=True), "tasks": _number(0, 1e300, null=True),
        "law": Allowed(
            "a list of numbers or null", lambda value: value is None or _list_of(_ANY, value)
        ),
        "ended": _ANY,
    },
    # An event could not be written, so later decisions cannot be replayed.
    "dropped": {"kind": _TEXT},
}  # fmt: skip

#: Optional fields: values that changed (threads of each worker, workers of each job, bytes of each
#: job by worker), and `idle` and `offered`, which earlier releases wrote.
MAY_HOLD: dict[str, dict[str, Allowed]] = {
    "start": {
        "latest": _LATEST,
        "continued": _FLAG,
        "owners": _mapping(_TERMS),
    },
    # `like`: numbers of the past runs that the job's forecast draws on, nearest first.
    "arrive": {
        "owner": _TEXT, "kind": _KIND, "like": _LIKE,
        "search": _TEXT,  # of which the job is a model, or its own name
        **dict.fromkeys(LATER, _SETTING),
    },
    "set": dict.fromkeys(LATER, _SETTING),
    "leave": {"outcome": _TEXT},
    # `step`: the number of the iteration, if it was named.
    "report": {"idle": _IDLE, "step": _whole(1, 10**12)},
    "decide": {
        "offered": _COUNT, "workers": _mapping(_whole(1, 1_000_000)),
        "eligible": _mapping(Allowed("a list of texts", _texts)),
        "affinity": _mapping(_mapping(_BYTES)),
    },
}  # fmt: skip


class Field(NamedTuple):
    """Argument of a call: the values that are allowed, and how it is written and read back."""

    allowed: Allowed
    write: Callable[[Any], Any] = lambda value: value
    read: Callable[[Any], Any] = lambda value: value
    #: Value with which it is left out; ... if it never is.
    unless: Any = ...


class Call(NamedTuple):
    """Call of a method of the engine that is recorded as it is, by the names of its arguments."""

    method: str
    fields: dict[str, Field]
    #: Fields besides the job with which a call changes nothing at first; if there are some, calls
    #: that repeat the last one of a job are not recorded. Nor are those that return False.
    first: Event | None = None


def _null_for(number: float, low: float, high: float) -> Field:
    """Return the field of a number of which one value, such as inf, is null."""

    def write(value: float) -> float | None:
        return None if value is None or value == number or value != value else float(value)

    return Field(_number(low, high, null=True), write, lambda v: number if v is None else v)


def write_terms(terms: OwnerTerms) -> list[float | None]:
    """Return the terms of an owner as they are recorded: its weight, and most threads or null."""
    return [terms.weight, None if terms.max_threads == math.inf else float(terms.max_threads)]


def read_terms(terms: list[Any]) -> OwnerTerms:
    """Return recorded terms of an owner."""
    weight, most = terms
    return OwnerTerms(weight, math.inf if most is None else most)


def _numbers(given: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in given.items()}


_JOB = Field(_TEXT)

#: Calls by the name of their event.
CALLS = {
    "demand": Call("observe_demand", {"job": _JOB, "tasks": Field(_COUNT, float)}, {"tasks": 0}),
    # Core-seconds of the submitted tasks of a job, null if unknown, and whether more may come.
    "left": Call(
        "observe_left",
        {"job": _JOB, "seconds": _null_for(math.nan, 0, 1e15), "more": Field(_FLAG, unless=False)},
        {"seconds": None},
    ),
    # Core-seconds of the stages of a job that are to come, null without stages.
    "after": Call(
        "observe_after", {"job": _JOB, "seconds": _null_for(math.nan, 0, 1e15)}, {"seconds": None}
    ),
    # Core-seconds that owners used lately, which fade.
    "use": Call(
        "observe_use", {"used": Field(_mapping(_number(0, 1e300)), _numbers)}, {"used": {}}
    ),
    # Owners over their budget, which run on what nobody else wants.
    "spare": Call("set_spare", {"owners": Field(Allowed("a list of texts", _texts), sorted)}),
    # Threads that are reserved now, by name of an owner.
    "reserved": Call("set_reserved", {"threads": Field(_mapping(_AMOUNT), _numbers)}),
    "floor": Call("set_floor", {"job": _JOB, "threads": Field(_AMOUNT, float)}),
    "max_iter": Call(
        "set_max_iter",
        {
            "job": _JOB,
            "max_iter": Field(
                _number(1, 1e300, null=True), lambda most: None if most is None else float(most)
            ),
        },
    ),
    "pause": Call("pause", {"job": _JOB, "paused": Field(_FLAG, bool)}),
    "policy": Call(
        "set_policy", {"policy": Field(_TEXT, lambda policy: getattr(policy, "name", policy))}
    ),
    # The terms of an owner, after some were changed: weight, and most threads or null.
    "owner": Call(
        "set_owner", {"owner": Field(_TEXT), "terms": Field(_TERMS, write_terms, read_terms)}
    ),
}
for _event, _call in CALLS.items():
    _fields = _call.fields.items()
    EVENTS[_event] = {name: of.allowed for name, of in _fields if of.unless is ...}
    MAY_HOLD[_event] = {name: of.allowed for name, of in _fields if of.unless is not ...}


def write_settings(settings: Mapping[str, Any]) -> Event:
    """Return the fields that record the settings of a job, other than its `max_iter`."""
    later = {name: settings[name] for name in LATER if settings[name] is not None}
    finite = {name: None if value == math.inf else float(value) for name, value in later.items()}
    return {name: settings[name] for name in SETTINGS} | finite


def read_settings(event: Event) -> dict[str, Any]:
    """Return the settings of a job in an event, by name."""
    later = {name: event[name] for name in LATER if name in event}
    found = {name: math.inf if value is None else value for name, value in later.items()}
    return {name: event[name] for name in SETTINGS} | found


def check(event: Any) -> str:
    """Return the kind of an event, or raise `BadEvent` if it is not one that a recorder writes."""
    if not isinstance(event, dict):
        raise BadEvent(f"an event is an object, not {event!r:.60}")
    kind = event.get("event")
    if not isinstance(kind, str) or kind not in EVENTS:
        raise BadEvent(f"no event is called {kind!r:.60}; there are: {', '.join(EVENTS)}")
    for name, allowed in EVENTS[kind].items():
        if name not in event:
            raise BadEvent(f"{name!r} is missing in {kind!r}")
        _check_field(kind, name, event[name], allowed)
    for name, allowed in MAY_HOLD.get(kind, {}).items():
        if name in event:
            _check_field(kind, name, event[name], allowed)
    return kind


def _check_field(kind: str, name: str, value: Any, allowed: Allowed) -> None:
    if not allowed.test(value):
        raise BadEvent(f"{name!r} of {kind!r} must be {allowed.words}, not {value!r:.60}")
