"""Bounded events of a search, for those who follow its trials."""

from __future__ import annotations

from collections import deque
from typing import Any

__all__ = ["Events"]

#: Maximum number of events that wait to be read. Then reports are dropped; at twice as many, all.
MOST = 5000


class Events:
    """Events of one search, numbered from 0, that wait to be read by one reader.

    >>> events = Events()
    >>> events.add({"event": "begin", "key": "x"})
    >>> events.read(0)
    {'events': [{'event': 'begin', 'key': 'x'}], 'after': 1, 'dropped': 0, 'over': False}
    >>> events.read(1)["events"]
    []
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._events: deque[dict[str, Any]] = deque()
        self._read = 0  # number of the first one that is kept
        self.dropped = 0
        self.over = False  # whether no further ones come

    def add(self, event: dict[str, Any]) -> None:
        """Keep an event until it is read, unless too many wait."""
        most = self._most if event["event"] == "report" else 2 * self._most
        if len(self._events) < most:
            self._events.append(event)
        else:
            self.dropped += 1

    def read(self, after: int) -> dict[str, Any]:
        """Return the events from number `after` on. Those before have arrived, and are forgotten.

        Returns
        -------
        dict
            ``events``, ``after`` (with which to read on), ``dropped`` (number of those that were
            dropped so far), and ``over``.
        """
        while self._events and self._read < after:
            self._events.popleft()
            self._read += 1
        return {
            "events": list(self._events),
            "after": self._read + len(self._events),
            "dropped": self.dropped,
            "over": self.over,
        }
