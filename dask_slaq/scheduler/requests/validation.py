"""Validation of requests from clients, so that an invalid request affects its sender alone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.job_settings import SENT, check_job_settings
from dask_slaq.core.memory import read_kind
from dask_slaq.core.search_goals import is_unknown
from dask_slaq.core.search_settings import SearchSettings
from dask_slaq.core.settings import check_name, shown
from dask_slaq.plug_ins import add_goals
from dask_slaq.scheduler.requests.of_trials import read_params

logger = logging.getLogger(__name__)

#: What a request to open a job may hold alongside the name, the client and its settings.
ALONGSIDE = ("run", "search", "within", "reattach", "params")
#: Seconds between two log lines about the dropped messages of one sender.
PAUSE = 10.0
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
        "params": _read_params(given.get("params")),
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


def _read_params(given: object) -> dict[str, Any]:
    if given is None:
        return {}
    return read_params(given) or {}


class Dropped:
    """`count` and log of dropped messages, limited to a line per sender and `PAUSE` seconds."""

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
        asyncio.get_running_loop().call_later(PAUSE, self._enter, self._release, name)

    def _release(self, name: str) -> None:
        count, text = self._held.pop(name)
        if count:
            logger.warning("dropped %d more messages from %s; the last: %s", count, name, text)
            self._hold(name)
