"""Validation of requests from clients, so that an invalid request affects its sender alone."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.reports import MOST_LOSSES, MOST_METRIC_CHARACTERS, as_metrics, as_step
from dask_slaq.core.jobs.settings import SENT, check_job_settings
from dask_slaq.core.run_history import read_kind
from dask_slaq.core.search_settings import SearchSettings, is_unknown
from dask_slaq.core.settings import check_name, is_number, shown
from dask_slaq.core.text import printable
from dask_slaq.core.trials import MOST_GROUP_CHARACTERS, TrialEvent, as_parameters, bounded
from dask_slaq.plug_ins import add_goals
from dask_slaq.scheduler.trials import TrialMessage


def check_trial(message: Mapping[str, Any]) -> TrialMessage:
    """Return what the message of a trial says. Raises `InvalidSetting`."""
    found: dict[str, Any] = {each.name: message.get(each.name) for each in fields(TrialMessage)}
    losses = found["losses"]
    if isinstance(losses, list | tuple) and len(losses) > MOST_LOSSES:
        for name in ("losses", "steps", "grown", "others"):  # the newest count
            listed = found[name]
            found[name] = listed[-MOST_LOSSES:] if isinstance(listed, list | tuple) else listed
    try:
        hash((found["key"], found["number"]))
        found["losses"] = [float(loss) for loss in found["losses"]]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidSetting(
            f"a trial is known by its key and number, and has losses, not {shown(found)}"
        ) from error
    if found["what"] not in list(TrialEvent) or isinstance(losses, str | bytes):
        does = ", ".join(TrialEvent)
        raise InvalidSetting(f"a trial does one of {does}, not {shown(found['what'])}")
    found["what"] = TrialEvent(found["what"])
    found["took"], found["life"] = found["took"] or 0.0, found["life"] or 0.0
    for name in ("computed", "waited", "at", "took", "life"):
        seconds = found[name]
        if not (is_number(seconds) and 0 <= seconds < math.inf):
            raise InvalidSetting(f"{name} must be a number of seconds, not {shown(seconds)}")
    memory: Any = [found["memory"], *_listed(found, "grown")]
    if not all(size is None or (is_number(size) and abs(size) < math.inf) for size in memory):
        raise InvalidSetting(f"a worker takes bytes of memory, not {shown(memory)}")
    found["steps"] = [as_step(step) for step in _listed(found, "steps")]
    found["begins"], found["curve"] = (as_step(found[name]) or 0 for name in ("begins", "curve"))
    found["moves"] = as_step(found["moves"])
    found["state"] = None if found["state"] is None else _read_state(found["state"])
    found["params"] = read_params(found["params"])
    found["group"] = None if found["group"] is None else _read_group(found["group"])
    found["metric"] = printable(found["metric"] or "")[:MOST_METRIC_CHARACTERS]
    found["drawn"], found["anew"] = found["drawn"] is True, found["anew"] is True
    found["others"] = [as_metrics(others) if others else {} for others in _listed(found, "others")]
    return TrialMessage(**found)


def read_params(given: object) -> dict[str, Any] | None:
    """Return the parameters of a trial, as plain and bounded values."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidSetting(f"a trial has parameters by name, not {shown(given)}")
    return bounded(as_parameters(given))


def _read_state(given: object) -> dict[str, Any]:
    """Return what a trial says of its state: its name, bytes, reports, and where a replica goes."""
    if isinstance(given, Mapping):
        found = {name: given.get(name) for name in ("name", "nbytes", "reports", "peer")}
        texts = [found["name"], found["peer"]]
        counts: list[Any] = [found["nbytes"], found["reports"]]
        if all(isinstance(text, str) for text in texts) and all(
            isinstance(n, int) and 0 <= n < 2**63 for n in counts
        ):
            return found
    raise InvalidSetting(f"a state has a name, bytes, reports and a peer, not {shown(given)}")


def _read_group(given: Any) -> tuple[str, str]:
    """Return the names of the group and of the candidate of a trial."""
    names = list(given) if isinstance(given, list | tuple) else []
    if len(names) == 2 and all(
        isinstance(n, str) and len(n) <= MOST_GROUP_CHARACTERS for n in names
    ):
        return names[0], names[1]
    raise InvalidSetting(f"a trial has a group and a candidate, not {shown(given)}")


def _listed(found: dict[str, Any], name: str) -> list[Any]:
    """Return what a trial says of each loss, as a list; empty if it says nothing."""
    listed = found[name] = [] if found[name] is None else found[name]
    if not isinstance(listed, list | tuple) or len(listed) not in (0, len(found["losses"])):
        raise InvalidSetting(f"a trial has one of its {name} per loss, not {shown(listed)}")
    return list(listed)


logger = logging.getLogger(__name__)

#: What a request to open a job may hold alongside the name, the client and its settings.
ALONGSIDE = ("run", "search", "within", "reattach", "params")
#: Seconds between two log lines about the dropped messages of one sender.
PAUSE_SECONDS = 10.0
#: Maximum number of senders with a recent log line. Messages of further senders are not logged.
MOST_SENDERS = 1000


def check_opening(name: object, given: Mapping[str, Any]) -> dict[str, Any]:
    """Check a request to open a job, and return its settings as plain Python values.

    ``within`` is the job in whose block it was opened, ``reattach`` is whether it may take over a
    search that is kept, ``search`` is None for a job that is not a search, and ``params`` are those
    of a model. Raises `InvalidSetting`.
    """
    check_name(name)
    settings = {key: value for key, value in given.items() if key not in ALONGSIDE}
    settings = check_job_settings(settings, SENT)
    run = given.get("run")
    if not (run is None or (isinstance(run, str) and len(run) <= 64)):
        raise InvalidSetting(f"run must be a string of at most 64 characters, not {shown(run)}")
    within = given.get("within")
    if within is not None:
        check_name(within)
    return {
        **settings,
        "kind": read_kind(settings["kind"]),
        "run": run,
        "search": _read_search(given.get("search")),
        "within": within,
        "reattach": bool(given.get("reattach")),
        "params": read_params(given.get("params")) or {},
    }


def know_goal(goal: object) -> None:
    """Let searches have the goals of installed packages, if one is asked for that nobody added."""
    if is_unknown(goal):
        add_goals()


def _read_search(given: Any) -> SearchSettings | None:
    if given is None:
        return None
    try:
        know_goal({**given}.get("goal"))
        return SearchSettings(**given)
    except TypeError as error:
        raise InvalidSetting(f"search must be settings of a search, not {shown(given)}") from error


class Dropped:
    """`count` and log of dropped messages, limited to a line per sender and `PAUSE_SECONDS`."""

    def __init__(self, enter: Callable[..., Any]) -> None:
        self._enter, self.count = enter, 0
        self._held: dict[str, tuple[int, str]] = {}  # unlogged messages, last error

    def add(self, what: str, sender: object, error: BaseException) -> None:
        """Log a dropped message of a client or worker, or count it after a recent log line."""
        self.count += 1
        name, text = shown(sender), f"{what}: {str(error)[:300]}"
        if name in self._held:
            self._held[name] = self._held[name][0] + 1, text
        elif len(self._held) < MOST_SENDERS:
            logger.warning("dropped a message from %s: %s", name, text)
            self._hold(name)

    def _hold(self, name: str) -> None:
        self._held[name] = 0, ""
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, self._enter, self._release, name)

    def _release(self, name: str) -> None:
        count, text = self._held.pop(name)
        if count:
            logger.warning("dropped %d more messages from %s; the last: %s", count, name, text)
            self._hold(name)
