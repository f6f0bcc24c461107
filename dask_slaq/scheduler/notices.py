"""Notices: alerts that the scheduler posts to a webhook, or passes to a command or a function.

No client needs to be connected. Each way has a thread of its own while it has something to tell, so
that one that hangs keeps neither the event loop nor others waiting. A failure is logged once.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import threading
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic, time
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.notice_terms import NoticeTerms
from dask_slaq.core.owner_terms import DEFAULT

__all__ = ["Notices"]

logger = logging.getLogger(__name__)

#: Seconds that one notice may take; notices that wait for one way at most; and seconds for which a
#: scheduler that closes waits for those that are on their way.
TIMEOUT, MOST_WAITING, AT_CLOSE = 10.0, 100, 2.0


class Notices:
    """Notices of a scheduler, by owner, ``ann@host``, ``ann`` or team; others have `DEFAULT`'s."""

    def __init__(self, terms: Mapping[str, NoticeTerms]) -> None:
        self._terms = terms
        self._calls = {
            name: call
            for name, one in terms.items()
            if one.call and (call := _sink(name, one.call))
        }
        self._ways: dict[tuple[str, str], _Way] = {}

    @property
    def dropped(self) -> int:
        """Number of notices that were dropped because too many waited."""
        return sum(way.dropped for way in self._ways.values())

    def tell(self, alert: dict[str, Any]) -> None:
        """Tell the owner of an alert, if it is to be told of such. Does not wait, never raises."""
        try:
            owner, event = str(alert.get("owner", "")), alert.get("event")
            name = next((name for name in _names_of(owner) if name in self._terms), None)
            if name is None or event not in self._terms[name].events:
                return
            text = alert.get("message", "")
            notice = {**alert, "text": text, "time": time()}
            self._send(name, self._terms[name], notice)
        except Exception as error:
            logger.warning("an alert is not told: %s", _in_words(error))

    def _send(self, name: str, terms: NoticeTerms, notice: dict[str, Any]) -> None:
        if (url := terms.webhook) is not None:
            self._way(name, "webhook", lambda notice: _post(url, notice)).put(notice)
        if (command := terms.command) is not None:
            self._way(name, "command", lambda notice: _run(command, notice)).put(notice)
        if (call := self._calls.get(name)) is not None:
            self._way(name, "sink", call).put(notice)

    def _way(self, name: str, kind: str, deliver: Callable[[dict[str, Any]], object]) -> _Way:
        way = self._ways.get((name, kind))
        if way is None:
            way = self._ways[name, kind] = _Way(f"the {kind} of {name}", deliver)
        return way

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
    team, _, member = owner.rpartition("/")
    parts = team.split("/") if team else []
    teams = ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]
    return [owner, owner.partition("@")[0], member, member.partition("@")[0], *teams, DEFAULT]


class _Way:
    """One way to tell somebody: a bounded queue, and a thread while there is something in it."""

    def __init__(self, name: str, deliver: Callable[[dict[str, Any]], object]) -> None:
        self._name, self._deliver = name, deliver
        self._waiting: deque[dict[str, Any]] = deque()
        self._lock = threading.Lock()
        self._failed = False  # whether the last notice failed, and that was logged
        self.thread: threading.Thread | None = None
        self.dropped = 0

    def put(self, notice: dict[str, Any]) -> None:
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                self.dropped += 1
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
            logger.warning("%s failed, not logged again until it works: %s", self._name, why)


def _sink(name: str, text: str) -> Callable[[dict[str, Any]], object] | None:
    """Return what is called with the notices of `name`; None, and a line in the log, if broken."""
    from dask_slaq.plug_ins import load

    try:
        found = load("sink", text)
        if not callable(found):
            raise InvalidSetting(f"{text} cannot be called")
    except InvalidSetting as error:
        logger.error("slaq.notify of %s: %s; nothing is called", name, error)
        return None
    call: Callable[[dict[str, Any]], object] = found
    return call


def _post(url: str, notice: dict[str, Any]) -> None:
    body = json.dumps(notice, default=str).encode()
    headers = {"Content-Type": "application/json", "User-Agent": "dask-slaq"}
    request = urllib.request.Request(url, body, headers, method="POST")
    with urllib.request.urlopen(request, timeout=TIMEOUT):
        pass


def _run(command: tuple[str, ...], notice: dict[str, Any]) -> None:
    fields = ("event", "job", "owner", "message")
    told = {f"SLAQ_{key.upper()}": str(notice.get(key, "")).replace("\0", "") for key in fields}
    subprocess.run(
        command,
        input=json.dumps(notice, default=str).encode() + b"\n",
        env={**os.environ, **told},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT,
        check=True,
    )


def _in_words(error: Exception) -> str:
    """Return what went wrong, without the address or command, which may hold secrets."""
    if isinstance(error, urllib.error.HTTPError):
        return f"it answered with status {error.code}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with code {error.returncode}"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError | subprocess.TimeoutExpired):
        return f"no answer within {TIMEOUT:g} s"
    return getattr(cause, "strerror", None) or type(cause).__name__


def _join(threads: list[threading.Thread], until: float) -> None:
    for thread in threads:
        thread.join(max(until - monotonic(), 0.0))
