"""Notices: alerts that the scheduler passes to sinks, which are plug-ins.

No client needs to be connected. Each sink has a thread of its own while there is something to tell,
so that one that hangs keeps neither the event loop nor others waiting. A failure is logged once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic, time
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.notice_terms import NoticeTerms
from dask_slaq.core.owners.terms import DEFAULT
from dask_slaq.core.settings import teams_above
from dask_slaq.plug_ins import load

logger = logging.getLogger(__name__)

#: Notices that wait for one sink at most; and seconds for which a scheduler that closes waits for
#: those that are on their way.
MOST_WAITING, AT_CLOSE = 100, 2.0


class Notices:
    """Notices of a scheduler, by owner, ``ann@host``, ``ann`` or team; others have `DEFAULT`'s."""

    def __init__(self, terms: Mapping[str, NoticeTerms]) -> None:
        self._terms = terms
        sinks = {name: _sink(name, one.call) for name, one in terms.items()}
        self._ways = {name: _Way(name, sink) for name, sink in sinks.items() if sink is not None}

    def tell(self, alert: dict[str, Any]) -> None:
        """Tell the owner of an alert, if it is to be told of such. Does not wait, never raises."""
        try:
            owner, event = str(alert.get("owner", "")), alert.get("event")
            name = next((name for name in _names_of(owner) if name in self._terms), None)
            if name is None or event not in self._terms[name].events:
                return
            if (way := self._ways.get(name)) is not None:
                way.put({**alert, "text": alert.get("message", ""), "time": time()})
        except Exception as error:
            logger.warning("an alert is not told: %s", _in_words(error))

    async def close(self) -> None:
        """Wait a moment for notices that are on their way."""
        threads = [way.thread for way in self._ways.values() if way.thread is not None]
        if threads:
            end = monotonic() + AT_CLOSE
            try:
                await asyncio.to_thread(_join, threads, end)
            except RuntimeError:  # the program ends, and no other thread takes work any more
                _join(threads, end)


def _names_of(owner: str) -> list[str]:
    """Return under which names an owner may be told, nearest first: hers, her teams', and all."""
    member = owner.rpartition("/")[2]
    short = [name.partition("@")[0] for name in (owner, member)]
    return [owner, short[0], member, short[1], *teams_above(owner), DEFAULT]


class _Way:
    """The sink of one name: a bounded queue, and a thread while there is something in it."""

    def __init__(self, name: str, deliver: Callable[[dict[str, Any]], object]) -> None:
        self._name, self._deliver = name, deliver
        self._waiting: deque[dict[str, Any]] = deque()
        self._lock = threading.Lock()
        self._failed = False  # whether the last notice failed, and that was logged
        self.thread: threading.Thread | None = None

    def put(self, notice: dict[str, Any]) -> None:
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                self._log("too many notices wait, and some are dropped")
                return
            self._waiting.append(notice)
            if self.thread is None:
                thread = threading.Thread(target=self._work, name="slaq-notices", daemon=True)
                thread.start()
                self.thread = thread

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self.thread = None
                    return
                notice = self._waiting.popleft()
            try:
                self._deliver(notice)
                self._failed = False
            except Exception as error:
                self._log(_in_words(error))

    def _log(self, why: str) -> None:
        if not self._failed:
            self._failed = True
            logger.warning(
                "the sink of %s failed, not logged again until it works: %s", self._name, why
            )


def _sink(name: str, text: str) -> Callable[[dict[str, Any]], object] | None:
    """Return what is called with the notices of `name`; None, and a line in the log, if broken.

    The line has no arguments of the class path, which may hold secrets.
    """
    where, why = text.partition("(")[0], "it cannot be called"
    try:
        found = load("sink", text)
        if callable(found):
            return found
    except InvalidSetting as error:
        why = type(error.__cause__).__name__
    logger.error("slaq.notify of %s: %s cannot be used: %s; nothing is called", name, where, why)
    return None


def _in_words(error: Exception) -> str:
    """Return what went wrong, without the message, which may hold secrets."""
    cause = getattr(error, "reason", error)  # what `urllib` has wrapped
    number = getattr(error, "code", getattr(error, "returncode", None))
    name = type(error).__name__
    known: str | None = getattr(cause, "strerror", None)
    return known or (f"{name} {number}" if isinstance(number, int) else name)


def _join(threads: list[threading.Thread], until: float) -> None:
    for thread in threads:
        thread.join(max(until - monotonic(), 0.0))
