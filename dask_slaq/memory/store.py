"""Store of runs in a file, written by one thread so that the caller never waits for a disk.

Nothing here raises once the store is made. A file that cannot be used is set aside with one line in
the log; what cannot be written is said once, and left out from then on.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_slaq.core.memory import Run
from dask_slaq.core.usage import Usage, UsageKey
from dask_slaq.memory.audit_rows import select_audit
from dask_slaq.memory.reading import select_runs
from dask_slaq.memory.run_rows import COLUMNS, runs_of
from dask_slaq.memory.schema import is_damage, open_to_read
from dask_slaq.memory.usage_rows import select_usage
from dask_slaq.memory.writer import Writer

__all__ = ["LAPSE", "RunStore", "Unfinished"]

logger = logging.getLogger(__name__)

#: Maximum numbers of runs and of bytes in the file; above them the oldest runs are deleted.
MOST_RUNS, MOST_BYTES = 100_000, 190_000_000
#: Seconds after which an unfinished run that nobody took up again has failed.
LAPSE = 600.0


@dataclass(frozen=True)
class Unfinished:
    """A run of which the end is not known, as it was when it was last written.

    Attributes
    ----------
    key : str
        Identifies the run.
    owner : str
    run : Run
        Its ``ended`` is when it was written.
    """

    key: str
    owner: str
    run: Run


class RunStore:
    """Store of past runs, and of the ones that go on, in a file.

    Parameters
    ----------
    path : path
        File, created if it is missing.
    acknowledge : callable, optional
        Called in the writer's thread as ``acknowledge(keys)`` with the keys of ended runs that
        are safe on disk.
    most_runs, most_bytes : int
        Maximum size of the file.

    Attributes
    ----------
    path : Path
    """

    def __init__(
        self,
        path: str | Path,
        acknowledge: Callable[[Sequence[str]], object] | None = None,
        *,
        most_runs: int = MOST_RUNS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.path = Path(path).expanduser().absolute()
        self._writer = Writer(self.path, acknowledge, most_runs, most_bytes)
        self._put = self._writer.put

    @property
    def failed(self) -> str | None:
        """Why nothing is written any more."""
        return self._writer.failed

    @property
    def stored(self) -> int:
        """Number of runs that are safe on disk since the store was made."""
        return self._writer.stored

    @property
    def dropped(self) -> int:
        """Number of requests that were left out since the store was made."""
        return self._writer.dropped

    # Called by the scheduler; none of these waits.

    def add(self, key: str, run: Run) -> None:
        """Queue a run that has ended, in place of an unfinished one of this key.

        Parameters
        ----------
        key : str
            Identifies the run.
        run : Run
        """
        self._put("add", key, run)

    def checkpoint(self, runs: Sequence[Unfinished]) -> None:
        """Queue runs that go on, each in place of what was written of it before."""
        if runs:
            self._put("checkpoint", tuple(runs))

    def discard(self, key: str) -> None:
        """Queue the removal of an unfinished run of which nothing is worth keeping."""
        self._put("discard", key)

    def lapse(self, now: float) -> None:
        """Queue that unfinished runs written `LAPSE` seconds before `now` count as failed."""
        self._put("lapse", now - LAPSE)

    def add_usage(
        self, rows: Sequence[tuple[UsageKey, Usage]], then: Callable[[], object] = bool
    ) -> bool:
        """Queue usage to add. Returns whether it was queued.

        Parameters
        ----------
        rows : sequence of (UsageKey, Usage)
        then : callable
            Called in the writer's thread once the rows are written.
        """
        return self._put("usage", tuple(rows), then)

    def add_audit(self, event: Mapping[str, Any]) -> None:
        """Queue an `event` of the audit, a mapping of plain values."""
        self._put("audit", dict(event))

    # Called in other threads; these wait.

    def load(self, kind: str, most: int) -> list[Run]:
        """Read the newest runs of a kind; none if the file cannot be read.

        Parameters
        ----------
        kind : str
            Name of the kind.
        most : int
            Maximum number of runs.
        """
        return self._read(lambda connection: select_runs(connection, kind, most)) or []

    def unfinished(self, since: float) -> list[Unfinished]:
        """Read the unfinished runs that were written since a time, in seconds since 1970."""

        def select(connection: sqlite3.Connection) -> list[Unfinished]:
            columns = ", ".join(COLUMNS)
            rows = connection.execute(
                f"SELECT owner, {columns} FROM unfinished WHERE ended >= ? ORDER BY ended",
                (since,),
            ).fetchall()
            owners = {str(row[1]): str(row[0]) for row in rows}
            runs = runs_of(row[1:] for row in rows)
            return [Unfinished(key, owners[key], run) for key, run in runs]

        return self._read(select) or []

    def usage(
        self, by: Sequence[str], since: int | None = None
    ) -> dict[tuple[str | int, ...], Usage] | None:
        """Read usage as `select_usage` does; None if the file cannot be read.

        Parameters
        ----------
        by : sequence of str
        since : int, optional
        """
        found: dict[tuple[str | int, ...], Usage] | None = self._read(
            lambda connection: select_usage(connection, by, since)
        )
        return found

    def audit(self) -> list[dict[str, Any]]:
        """Read the events of the audit, oldest first; none if the file cannot be read."""
        return self._read(select_audit) or []

    def _read(self, select: Callable[[sqlite3.Connection], Any]) -> Any:
        self._writer.opened.wait(30)
        try:
            with closing(open_to_read(self.path)) as connection:
                return select(connection)
        except Exception as error:
            if is_damage(error):
                self._put("damaged", error)
            else:
                logger.debug("cannot read %s: %s", self.path, error)
            return None

    def flush(self, timeout: float = 10.0) -> bool:
        """Wait until what is queued now is written. Returns whether it was, in time.

        Parameters
        ----------
        timeout : float
            Seconds.
        """
        done = threading.Event()
        self._put("call", done.set)
        return self.failed is None and done.wait(timeout) and self.failed is None

    def close(self, timeout: float = 10.0) -> None:
        """Write what is queued, and close the file. Requests from now on are left out.

        Parameters
        ----------
        timeout : float
            Seconds to wait for the thread; 0 to let it end by itself.
        """
        self._writer.close(timeout)
