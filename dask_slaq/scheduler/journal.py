"""The journal: events as lines of JSON in a file, bounded and rotated.

The event loop only puts an event on a queue; a thread formats and writes it. An error while
writing is logged once, and nothing is recorded from then on: the scheduler is never disturbed.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from logging.handlers import QueueListener, RotatingFileHandler
from queue import SimpleQueue
from typing import Any

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

    Raises
    ------
    InvalidSetting
        When the file cannot be written.
    """

    def __init__(self, path: str, size: int, files: int) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self.failed: str | None = None
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
            self._lines.close()

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

    def emit(self, record: logging.LogRecord) -> None:
        if self._journal.failed is None:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        # Asked for twice: to see whether the file would be full, and to write.
        events: Any = record.__dict__.pop("events", ())
        for event in events:
            if event["event"] == "start":
                self._start = event
        if events:
            record.msg = self.terminator.join(map(_line, events))
        return str(record.msg)

    def doRollover(self) -> None:
        super().doRollover()
        if self._start is not None:
            self.stream.write(_line({**self._start, "continued": True}) + self.terminator)

    def handleError(self, record: logging.LogRecord) -> None:
        self._journal.fail(sys.exc_info()[1])


def _line(event: dict[str, Any]) -> str:
    return json.dumps(event, separators=(",", ":"))
