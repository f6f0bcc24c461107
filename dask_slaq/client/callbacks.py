"""Callbacks of searches: a thread reads what happens, and calls the functions of the user with it.

The scheduler keeps a bounded number of events until they are read. So a callback that is slow
delays nothing but itself, and costs reports when it falls far behind.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import request
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import shown
from dask_slaq.core.trials import as_parameters

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Callback", "Follower", "check_callbacks"]

logger = logging.getLogger(__name__)

Callback = Callable[[dict[str, Any]], object]

#: Seconds between two looks at what has happened; between two at whether the client is gone, while
#: an answer is awaited; and for which the end of a block waits for the callbacks.
PERIOD, LOOK, AT_END = 0.5, 5.0, 30.0
#: States of a client whose scheduler tells nothing any more.
GONE = ("closing", "closed")


def check_callbacks(given: object) -> list[Callback]:
    """Return the callbacks of a search as a list. Raises `InvalidSetting`."""
    if given is None:
        return []
    some = list(given) if isinstance(given, Iterable) and not callable(given) else [given]
    for each in some:
        if not callable(each):
            raise InvalidSetting(
                f"callbacks must be functions that take an event, a dict, not {shown(each)}"
            )
    return some


class Follower:
    """Thread that calls the `callbacks` of one block of a search with its events.

    `given` are parameters by key of the task, which this client knows better.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        run: str,
        callbacks: Iterable[Callback],
        given: Mapping[Any, Mapping[str, Any]],
    ) -> None:
        self._client, self._name, self._run, self._given = client, name, run, given
        self._callbacks = list(callbacks)
        self._params: dict[tuple[Hashable, Hashable], dict[str, Any]] = {}  # of models that train
        self._after = self._dropped = 0
        self._failed: set[int] = set()  # places of callbacks of which an error was logged
        self._look = threading.Event()
        self._asked = 0  # looks that somebody has asked for
        self._answered = threading.Condition()
        self._done: float = 0
        self._thread = threading.Thread(target=self._follow, name="slaq-callbacks", daemon=True)
        self._thread.start()

    def catch_up(self, seconds: float = AT_END) -> None:
        """Wait until the callbacks had all that has happened up to now, or for some `seconds`."""
        with self._answered:
            self._asked += 1
            wanted = self._asked
            self._look.set()
            if not self._answered.wait_for(lambda: self._done >= wanted, seconds):
                logger.warning(
                    "search %s: its callbacks are slow, and have not had all events after %g s",
                    *(self._name, seconds),
                )

    def _follow(self) -> None:
        over = False
        try:
            while not over:
                self._look.wait(PERIOD)
                self._look.clear()
                asked = self._asked
                over = self._read()
                self._answer(asked)
        except Exception as error:
            if self._client.status not in GONE:
                logger.warning("search %s: its callbacks are called no more: %r", self._name, error)
        finally:
            self._answer(float("inf"))

    def _answer(self, asked: float) -> None:
        with self._answered:
            self._done = asked
            self._answered.notify_all()

    def _read(self) -> bool:
        """Call the callbacks with what has happened. Returns whether nothing more will."""
        loop = self._client.loop.asyncio_loop
        if self._client.status in GONE or loop.is_closed():
            return True
        coroutine = request(self._client, "slaq_events", run=self._run, after=self._after)
        # The client may be asynchronous, and this is another thread than its own.
        answer = asyncio.run_coroutine_threadsafe(coroutine, loop)
        while not answer.done():  # a program may keep the loop of its client busy for long
            concurrent.futures.wait([answer], LOOK)
            if self._client.status in GONE or loop.is_closed():
                return True
        told = answer.result()
        for event in told["events"]:
            self._call(self._complete(event))
        self._after = told["after"]
        if told["dropped"] and not self._dropped:
            logger.warning(
                "search %s: its callbacks are slow, and miss some reports: search.curves() has all",
                self._name,
            )
        self._dropped = told["dropped"]
        return bool(told["over"])

    def _complete(self, told: Mapping[str, Any]) -> dict[str, Any]:
        """Return an event as callbacks get it; the scheduler tells parameters only once."""
        model = told["key"], told["trial"]
        if told["event"] == "begin":
            self._params[model] = as_parameters(self._given.get(told["key"]) or told["params"])
        last = told["event"] == "end"
        params = (self._params.pop if last else self._params.get)(model, {})
        ended = {"state": told.get("state", ""), "error": told.get("error", "")}
        return {"event": told["event"], "job": self._name, **told, "params": params, **ended}

    def _call(self, event: dict[str, Any]) -> None:
        for place, callback in enumerate(self._callbacks):
            try:
                callback({**event, "params": dict(event["params"])})
            except BaseException:  # SystemExit, too, would end this thread alone, without a word
                if place not in self._failed:
                    self._failed.add(place)
                    logger.warning(
                        "search %s: callback %r failed, further errors of it are not logged",
                        *(self._name, callback),
                        exc_info=True,
                    )
