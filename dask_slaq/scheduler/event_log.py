"""Journal of events: lines of JSON in a file, bounded and rotated.

The event loop only puts an event on a queue; a thread formats and writes it. An event that cannot
be written as JSON is left out. An error while writing is logged once and ends the recording, so
that the scheduler is never disturbed. Each recording begins on a new line.
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

#: Maximum number of events that wait to be written.
MOST_WAITING_EVENTS = 100_000


class Journal:
    """Log of events in a file. `InvalidSetting` is raised if it cannot be written.

    A file of `size` bytes is renamed to ``path.1``, ``path.1`` to ``path.2``, and so on. At least 2
    `files` are kept, and the oldest is deleted.
    """

    def __init__(self, path: str, size: int, files: int) -> None:
        self.path = os.path.abspath(os.path.expanduser(path))
        self.failed: str | None = None  # the error that ended the recording
        self.dropped = 0  # events that could not be written as JSON
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
        """Queue an event to be written. Never raises."""
        if self.failed is not None or self._listener is None:
            return
        if self._queue.qsize() < MOST_WAITING_EVENTS:
            self._queue.put(event)
        else:
            self.fail(BufferError(f"{MOST_WAITING_EVENTS} events wait to be written"))

    def close(self) -> None:
        """Write the waiting events, and close the file."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.stop()
            try:
                self._lines.close()
            except (OSError, ValueError) as error:  # buffered text cannot be written
                self.fail(error)

    def line(self, event: dict[str, Any]) -> str:
        """Return the line of an event, or of a ``dropped`` event if JSON cannot represent it."""
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
        """End the recording, and log the error once."""
        if self.failed is None:
            self.failed = f"{type(error).__name__}: {error}"
            logger.error("recording to %s ended: %s", self.path, self.failed, exc_info=error)


class _Listener(QueueListener):
    """Listener that joins events which come fast in one record.

    The file is checked and flushed once per record, not once per event.
    """

    queue: SimpleQueue[Any]  # narrower than what the base class accepts

    def dequeue(self, block: bool) -> Any:
        event = self.queue.get(block)
        if event is None:  # the sentinel of `stop`
            return None
        events = [event]
        while len(events) < 100 and not self.queue.empty():
            event = self.queue.get()
            if event is None:
                self.queue.put(None)
                break
            events.append(event)
        return logging.makeLogRecord({"events": events})


class _Lines(RotatingFileHandler):
    """Writer of events. Repeats the ``start`` event in every new file.

    The file that it was first written to is deleted in time.
    """

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
                    # A crash ended the previous recording in the middle of a line.
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
            assert self.stream is not None  # the file was just opened
            self.stream.write(again + self.terminator)

    def handleError(self, record: logging.LogRecord) -> None:
        self._journal.fail(sys.exc_info()[1])


def _ends_line(path: str) -> bool:
    """Return whether a file is empty or ends with a newline."""
    with open(path, "rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read() == b"\n"


def _plain(value: object) -> object:
    """Convert a NumPy scalar to a Python scalar."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not JSON serializable")
