"""Store of runs in a file, written by one thread so that the caller never waits for a disk.

Nothing here raises once the store is made. A file that cannot be used is set aside with one line in
the log; what cannot be written is said once, and left out from then on.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import monotonic, time
from typing import Any, TypeVar

from dask_slaq.core.owners.reservations import Reservation
from dask_slaq.core.owners.usage import DAY_SECONDS, Usage, UsageKey
from dask_slaq.core.run_history import PastRun
from dask_slaq.run_history import rows as sql
from dask_slaq.run_history.file import is_damage, open_to_read, open_to_write, set_aside

logger = logging.getLogger(__name__)

T = TypeVar("T")
#: What a request does with the file, in a transaction: `False` if it was left out.
Write = Callable[[sqlite3.Connection], object]
#: A request, and what to call in the writer's thread once it is on disk.
Request = tuple[Write, Callable[[], object]]

#: Number of runs written between two looks at the size of the file.
LOOK_RUNS = 500
#: Maximum number of requests that wait to be written.
MOST_WAITING_REQUESTS = 10_000
#: Seconds between two attempts while another process holds the file.
PAUSE_SECONDS = 1.0


class RunStore:
    """Store of past runs in a file that is created if it is missing.

    ``failed`` is why nothing is written any more, ``stored`` and ``dropped`` count runs.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        most_runs: int = 100_000,
        most_bytes: int = 190_000_000,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self.failed: str | None = None
        self.stored = self.dropped = 0
        self._most_runs, self._most_bytes = most_runs, most_bytes
        self._looked, self._compacted = 0, -1.0
        self._requests: queue.Queue[Request | None] = queue.Queue(MOST_WAITING_REQUESTS)
        self._opened, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="slaq-run-history", daemon=True)
        self._thread.start()

    # Called by the scheduler; none of these waits.

    def add(self, run: PastRun) -> None:
        """Queue a run that has ended."""
        self._put(lambda connection: self._insert(connection, run), self._count)

    def _count(self) -> None:
        self.stored += 1

    def add_usage(
        self, rows: Sequence[tuple[UsageKey, Usage]], then: Callable[[], object] = bool
    ) -> bool:
        """Queue usage to add, and `then` for after it. Returns whether it was queued."""
        return self._put(lambda connection: sql.add_usage(connection, rows), then)

    def add_event(self, table: str, event: Mapping[str, Any]) -> None:
        """Queue an `event` of the audit, or of a job that ended: a mapping of plain values."""
        self._put(lambda connection: sql.add_event(connection, table, event))

    def set_reservations(self, all_: Sequence[Reservation]) -> None:
        """Queue reservations, in place of those in the file."""
        self._put(lambda connection: sql.replace_reservations(connection, all_))

    # Called in other threads; these wait.

    def load(self, kind: str, most: int) -> list[PastRun]:
        """Read the newest runs of the kind of a name; none if the file cannot be read."""
        return self._read(lambda connection: sql.select_runs(connection, kind, most)) or []

    def usage(
        self, by: Sequence[str], since: int | None = None
    ) -> dict[tuple[str | int, ...], Usage] | None:
        """Read usage as `select_usage` does, with what is queued; None if it cannot be read."""
        self.flush(2.0)
        return self._read(lambda connection: sql.select_usage(connection, by, since))

    def reservations(self) -> list[Reservation]:
        """Read the reservations; none if the file cannot be read."""
        return self._read(sql.select_reservations) or []

    def events(self, table: str) -> list[dict[str, Any]]:
        """Read the events of a table, oldest first, with those that are queued."""
        self.flush(2.0)
        return self._read(lambda connection: sql.select_events(connection, table)) or []

    def _read(self, select: Callable[[sqlite3.Connection], T]) -> T | None:
        self._opened.wait(30.0)
        try:
            with closing(open_to_read(self.path)) as connection:
                return select(connection)
        except Exception as error:
            if is_damage(error):
                self._complain(error)
            else:
                logger.debug("cannot read %s: %s", self.path, error)
            return None

    def _complain(self, error: Exception) -> None:
        """Let the writer look at a damaged file, which may have been replaced meanwhile."""

        def look(connection: sqlite3.Connection) -> None:
            if connection.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise error

        self._put(look)

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait for `timeout` seconds until what is queued is written. Returns whether it was."""
        done, deadline = threading.Event(), monotonic() + timeout
        if self._put(lambda connection: None, done.set):
            while not done.wait(0.05) and self._thread.is_alive() and monotonic() < deadline:
                pass
        return done.is_set()

    def close(self, timeout: float = 10.0) -> None:
        """Write what is queued within `timeout` seconds, and close the file."""
        self._closing.set()
        with contextlib.suppress(queue.Full):  # then the thread looks at the event
            self._requests.put_nowait(None)
        self._thread.join(timeout)

    def _put(self, write: Write, then: Callable[[], object] = bool) -> bool:
        """Queue a request. Returns whether it was queued."""
        if self.failed is None and not self._closing.is_set():
            try:
                self._requests.put_nowait((write, then))
                return True
            except queue.Full:
                if not self.dropped:
                    logger.warning(
                        "%s is written too slowly: of the runs that end, some are left out",
                        self.path,
                    )
        self.dropped += 1
        return False

    # In the thread.

    def _work(self) -> None:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._open()
            self._opened.set()
            while connection is not None and (requests := self._next()):
                connection = self._write_all(connection, requests)
        except Exception as error:  # a mistake of ours must not go unnoticed
            self._fail(error, trace=True)
        finally:
            self._opened.set()
            if connection is not None:
                connection.close()

    def _next(self) -> list[Request]:
        """Wait for requests, and return those that there are; none if the store is to close."""
        found: list[Request | None] = []
        with contextlib.suppress(queue.Empty):
            found.append(self._requests.get(not self._closing.is_set()))
            while len(found) < 500:
                found.append(self._requests.get_nowait())
        return [request for request in found if request is not None]

    def _open(self) -> sqlite3.Connection | None:
        """Open the file, and set aside what is there if it cannot be used; None if in vain."""
        for _ in range(2):
            try:
                connection = open_to_write(self.path)
                self._compact(connection)
                sql.prune_to(connection, self._most_runs, self._most_bytes)
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
        self, connection: sqlite3.Connection | None, requests: list[Request]
    ) -> sqlite3.Connection | None:
        """Write requests in one transaction. Returns the connection to go on with, or None."""
        if connection is not None and not self.path.exists():
            logger.warning("%s is gone: a new one was begun", self.path)
            connection.close()
            connection = self._open()
        anew = False  # once with a new file, if this one is damaged
        while connection is not None:
            try:
                self._write(connection, requests)
                return connection
            except Exception as error:
                busy = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
                if busy and not self._closing.wait(PAUSE_SECONDS):
                    continue
                connection.close()
                if anew or not is_damage(error) or not self._set_aside(error):
                    self._fail(error)
                    return None
                connection, anew = self._open(), True
        return None

    def _write(self, connection: sqlite3.Connection, requests: list[Request]) -> None:
        # First, as an error after the commit would let all be written, and usage added, again.
        if time() // DAY_SECONDS != self._compacted:
            self._compact(connection)
        if self.stored - self._looked >= LOOK_RUNS:
            self._looked = self.stored
            sql.prune_to(connection, self._most_runs, self._most_bytes)
        done = []
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for write, then in requests:
                if write(connection) is not False:
                    done.append(then)
        for then in done:
            then()

    def _compact(self, connection: sqlite3.Connection) -> None:
        """Add up old usage, once per day."""
        now = time()
        self._compacted = now // DAY_SECONDS
        sql.compact_usage(connection, now)

    def _insert(self, connection: sqlite3.Connection, run: PastRun) -> bool:
        """Write a run. Returns whether it can be stored."""
        try:
            row = sql.row_of(run)
        except Exception:  # one run must not cost the others
            if not self.dropped:
                logger.exception("a run of job %.100r cannot be stored", run.job)
            self.dropped += 1
            return False
        sql.insert(connection, row)
        return True

    def _fail(self, error: BaseException, trace: bool = False) -> None:
        self.failed = str(error) or type(error).__name__
        logger.warning(
            "runs are remembered until the scheduler ends, and no longer in %s: %s",
            self.path,
            self.failed,
            exc_info=error if trace else None,
        )
