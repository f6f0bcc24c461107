"""Thread that writes to the file of a store, so that its users never wait for a disk."""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from time import time
from typing import Any

from dask_slaq.core.memory import Run
from dask_slaq.core.usage import DAY
from dask_slaq.memory.audit_rows import add_audit
from dask_slaq.memory.run_rows import row_of
from dask_slaq.memory.schema import is_damage, open_to_write, set_aside
from dask_slaq.memory.usage_rows import add_usage, compact_usage
from dask_slaq.memory.writing import insert, is_sound, let_lapse, prune_to

__all__ = ["Writer"]

logger = logging.getLogger(__name__)

#: Number of runs written between two looks at the size of the file.
LOOK_EVERY = 500
#: Maximum number of requests that wait to be written, and that are written at once.
MOST_WAITING, MOST_TOGETHER = 10_000, 500
#: Maximum number of points of the curve of an unfinished run.
MOST_UNFINISHED_POINTS = 160
#: Seconds between two attempts while another process holds the file.
PAUSE = 1.0


class Writer:
    """Writer of one file, with a thread and a bounded queue of requests. Never raises.

    Parameters
    ----------
    path : Path
    acknowledge : callable or None
        See `RunStore`.
    most_runs, most_bytes : int
        See `RunStore`.

    Attributes
    ----------
    failed, stored, dropped
        See `RunStore`.
    opened : threading.Event
        Set when the file was opened, or could not be.
    """

    def __init__(
        self,
        path: Path,
        acknowledge: Callable[[Sequence[str]], object] | None,
        most_runs: int,
        most_bytes: int,
    ) -> None:
        self.path = path
        self.failed: str | None = None
        self.stored = self.dropped = 0
        self._acknowledge = acknowledge
        self._most_runs, self._most_bytes = most_runs, most_bytes
        self._since_look, self._compacted = 0, -1.0
        self._requests: queue.Queue[tuple[Any, ...]] = queue.Queue(MOST_WAITING)
        self.opened, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="slaq-memory", daemon=True)
        self._thread.start()

    def put(self, *request: Any) -> bool:
        """Queue a request: its name and arguments, see `_write`. Returns whether it was queued."""
        if self.failed is not None or self._closing.is_set():
            self.dropped += 1
            return False
        try:
            self._requests.put_nowait(request)
            return True
        except queue.Full:
            if not self.dropped:
                logger.warning(
                    "%s is written too slowly: of the runs that end, some are left out", self.path
                )
            self.dropped += 1
            return False

    def close(self, timeout: float) -> None:
        """Write what is queued, and close the file. See `RunStore.close`."""
        self._closing.set()
        with contextlib.suppress(queue.Full):  # then the thread looks at the event
            self._requests.put_nowait(("close",))
        self._thread.join(timeout)

    # In the thread.

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._open()
            self.opened.set()
            while connection is not None:
                requests = self._next()
                if requests is None:
                    return
                connection = self._write_all(connection, requests)
        except Exception as error:  # a mistake of ours must not go unnoticed
            self._fail(error, trace=True)
        finally:
            self.opened.set()
            self._empty()
            if connection is not None:
                connection.close()

    def _next(self) -> list[tuple[Any, ...]] | None:
        """Return the requests that wait, at least one; None if the store is to close."""
        requests = []
        try:
            requests.append(self._requests.get(not self._closing.is_set()))
            while len(requests) < MOST_TOGETHER:
                requests.append(self._requests.get_nowait())
        except queue.Empty:
            pass
        found = [request for request in requests if request[0] != "close"]
        return found or (None if self._closing.is_set() else [("call", bool)])

    def _open(self) -> sqlite3.Connection | None:
        """Open the file, and set aside what is there if it cannot be used; None if in vain."""
        for _ in range(2):
            try:
                connection = open_to_write(self.path)
                self._compact(connection)
                prune_to(connection, self._most_runs, self._most_bytes)
                return connection
            except Exception as error:
                if not (is_damage(error) and self._set_aside(error)):
                    self._fail(error)
                    return None
        return None

    def _set_aside(self, error: Exception) -> bool:
        if not self.path.is_file():
            return False
        try:
            new = set_aside(self.path)
        except OSError as other:
            logger.error("cannot set %s aside: %s", self.path, other)
            return False
        logger.warning(
            "cannot use %s as a store of runs (%s): it is now %s, and a new one was begun",
            self.path,
            error,
            new.name,
        )
        return True

    def _write_all(
        self, connection: sqlite3.Connection, requests: list[tuple[Any, ...]]
    ) -> sqlite3.Connection | None:
        """Write requests in one transaction. Returns the connection to go on with, or None."""
        again = False  # once with a new file, if this one is damaged
        if not self.path.exists():
            logger.warning("%s is gone: a new one was begun", self.path)
            connection.close()
            opened = self._open()
            if opened is None:
                _release(requests)
                return None
            connection = opened
        while True:
            try:
                damage = next((r[1] for r in requests if r[0] == "damaged" and not again), None)
                if damage is not None and not is_sound(connection):
                    raise damage
                self._write(connection, requests)
                return connection
            except Exception as error:
                busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if busy and not self._closing.wait(PAUSE):
                    continue
                connection.close()
                new = self._open_anew(error) if is_damage(error) and not again else None
                if new is None:
                    self._fail(error)
                    _release(requests)
                    return None
                connection, again = new, True

    def _open_anew(self, error: Exception) -> sqlite3.Connection | None:
        return self._open() if self._set_aside(error) else None

    def _write(self, connection: sqlite3.Connection, requests: list[tuple[Any, ...]]) -> None:
        # First, as an error after the commit would let all be written, and usage added, again.
        if time() // DAY != self._compacted:
            self._compact(connection)
        if self._since_look >= LOOK_EVERY:
            self._since_look = 0
            prune_to(connection, self._most_runs, self._most_bytes)
        added: list[str] = []
        then: list[Callable[[], object]] = []
        connection.execute("BEGIN IMMEDIATE")
        try:
            for what, *given in requests:
                if what == "add":
                    if self._insert(connection, *given):
                        added.append(given[0])
                    connection.execute("DELETE FROM unfinished WHERE key = ?", given[:1])
                elif what == "checkpoint":
                    for one in given[0]:
                        self._insert(connection, one.key, one.run, one.owner)
                elif what == "discard":
                    connection.execute("DELETE FROM unfinished WHERE key = ?", given)
                elif what == "lapse":
                    let_lapse(connection, *given)
                elif what == "usage":
                    add_usage(connection, given[0])
                    then.append(given[1])
                elif what == "audit":
                    add_audit(connection, *given)
                elif what == "call":
                    then += given
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        self.stored += len(added)
        if added and self._acknowledge is not None:
            self._acknowledge(added)
        for call in then:
            call()
        self._since_look += len(added)

    def _compact(self, connection: sqlite3.Connection) -> None:
        """Add up old usage, once per day."""
        now = time()
        self._compacted = now // DAY
        compact_usage(connection, now)

    def _insert(self, connection: sqlite3.Connection, key: str, run: Run, *owner: str) -> bool:
        """Write a run, an unfinished one if it has an owner. Returns whether it can be stored."""
        try:
            row = row_of(key, run, MOST_UNFINISHED_POINTS) if owner else row_of(key, run)
        except Exception:  # one run must not cost the others
            if not self.dropped:
                logger.exception("a run of job %.100r cannot be stored", run.job)
            self.dropped += 1
            return False
        insert(connection, row, *owner)
        return True

    def _fail(self, error: BaseException, trace: bool = False) -> None:
        self.failed = str(error) or type(error).__name__
        logger.warning(
            "runs are remembered until the scheduler ends, and no longer in %s: %s",
            self.path,
            self.failed,
            exc_info=error if trace else None,
        )

    def _empty(self) -> None:
        """Drop what is not going to be written, and release who waits for it."""
        with contextlib.suppress(queue.Empty):
            while True:
                _release([self._requests.get_nowait()])


def _release(requests: Sequence[tuple[Any, ...]]) -> None:
    """Release who waits for requests that were dropped."""
    for what, *given in requests:
        if what == "call":
            given[0]()
