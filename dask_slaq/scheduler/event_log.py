"""The journal: events as lines of JSON in a file, bounded and rotated.

The event loop only puts an event on a queue; a thread formats and writes it. An event that cannot
be written as JSON is left out. An error while writing is logged once, and nothing is recorded from
then on: the scheduler is never disturbed. A recording begins on a line of its own.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from logging.handlers import QueueListener, RotatingFileHandler
from queue import SimpleQueue
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting

logger = logging.getLogger(__name__)

#: Events that may wait to be written.
MOST_WAITING = 100_000
#: Events that are written at once.
MOST_TOGETHER = 100


class Journal:
    """A log of events.

    Parameters
    ----------
    path : str
        The file, to which is appended; when it is full it becomes ``path.1``, that one
        ``path.2``, and so on.
    size : int
        Bytes at which a file is full.
    files : int
        Files that are kept, 2 or more; the oldest is deleted.

    Attributes
    ----------
    failed : str or None
        The error that ended the recording.
    dropped : int
        Events that could not be written as JSON.

    Raises
    ------
    InvalidSetting
        When the file cannot be written.
    """

    def __init__(self, path: str, size: int, files: int) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self.failed: str | None = None
        self.dropped = 0
        try:
            self._lines = _Lines(self, size, files)
        except OSError as error:
            raise InvalidSetting(
                f"slaq.log must be a file that the scheduler can write, not {path!r}: {error}"
            ) from error
        self._queue: SimpleQueue[Any] = SimpleQueue()
        self._listener: _Listener | None = _Listener(self._queue, self._lines)
        self._listener.start()

    def write(self, event: dict[str, Any]) -> None:
        """Have an event written; never raises."""
        if self.failed is not None or self._listener is None:
            return
        if self._queue.qsize() < MOST_WAITING:
            self._queue.put(event)
        else:
            self.fail(BufferError(f"{MOST_WAITING} events wait to be written"))

    def close(self) -> None:
        """Write what waits, and close the file."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()
            try:
                self._lines.close()
            except (OSError, ValueError) as error:  # what waits cannot be written
                self.fail(error)

    def line(self, event: dict[str, Any]) -> str:
        """Return the line of an event; where JSON does not have it, one that says so."""
        try:
            return json.dumps(event, separators=(",", ":"), default=_plain)
        except (TypeError, ValueError, RecursionError) as error:
            if not self.dropped:
                logger.warning(
                    "an event cannot be written to %s and is left out; what is decided later "
                    "cannot be replayed, and further such events are left out in silence: "
                    "%.200s in %.200r",
                    self.path,
                    error,
                    event,
                )
            self.dropped += 1
            return json.dumps({"event": "dropped", "kind": str(event.get("event"))})

    def fail(self, error: BaseException | None) -> None:
        """Record nothing from now on, and say so once."""
        if self.failed is None:
            self.failed = f"{type(error).__name__}: {error}"
            logger.error("recording to %s ended: %s", self.path, self.failed, exc_info=error)


class _Listener(QueueListener):
    """Takes events off the queue, many at once where they come fast: the file is looked at and
    flushed for each record."""

    def dequeue(self, block: bool) -> Any:
        event = self.queue.get(block)
        if event is None:  # what `stop` puts last
            return None
        events = [event]
        while len(events) < MOST_TOGETHER and not self.queue.empty():
            event = self.queue.get()
            if event is None:
                self.queue.put(None)
                break
            events.append(event)
        return logging.makeLogRecord({"events": events})


class _Lines(RotatingFileHandler):
    """Writes events; every new file begins with the start of the recording, for it is in none of
    the older files when these are deleted."""

    def __init__(self, journal: Journal, size: int, files: int) -> None:
        super().__init__(journal.path, maxBytes=size, backupCount=files - 1, encoding="utf-8")
        self._journal = journal
        self._start: dict[str, Any] | None = None
        self._begun = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._journal.failed is not None:
            return
        try:
            if not self._begun:
                self._begun = True
                if self.stream and not _ends_line(self.baseFilename):
                    # A crash ended the recording before this one in the middle of a line.
                    self.stream.write(self.terminator)
            events: Any = record.__dict__.pop("events")
            record.msg = self.terminator.join(map(self._journal.line, events))
            super().emit(record)
            for event in events:
                if event["event"] == "start":
                    self._start = event
        except Exception:
            self.handleError(record)

    def format(self, record: logging.LogRecord) -> str:
        return str(record.msg)

    def doRollover(self) -> None:
        super().doRollover()
        if self._start is not None:
            again = self._journal.line({**self._start, "continued": True})
            self.stream.write(again + self.terminator)

    def handleError(self, record: logging.LogRecord) -> None:
        self._journal.fail(sys.exc_info()[1])


def _ends_line(path: str) -> bool:
    """Whether a file is empty, or ends with the end of a line."""
    with open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _plain(value: object) -> object:
    """Turn a number of NumPy into one that JSON has."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
