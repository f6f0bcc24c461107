"""Progress display during a run: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from distributed.metrics import time

from dask_slaq.demo.drivers import Record

#: Seconds between plain lines.
PERIOD = 5.0
_BAR = 24


class View(Protocol):
    """Display of the jobs of one run; a context manager that is entered for its duration."""

    def __enter__(self) -> View: ...

    def __exit__(self, *error: object) -> None: ...

    def update(self, records: Sequence[Record], status: dict[str, Any]) -> None:
        """Show the present state.

        Parameters
        ----------
        records : sequence of Record
            One per job.
        status : dict
            As returned by `dask_slaq.status`.
        """


def view(title: str, start: float) -> View:
    """Return a live table if stdout is a terminal and rich is installed, else plain lines.

    Parameters
    ----------
    title : str
    start : float
        Start of the run in Unix seconds.
    """
    if sys.stdout.isatty():
        try:
            import rich  # noqa: F401
        except ImportError:
            print("For a live table install rich: pip install 'dask-slaq[demo]'")
        else:
            return LiveTable(title, start)
    return PlainLines(title, start)


def state(record: Record) -> str:
    """Return the state of a job: ``waiting``, ``training``, ``done`` or ``failed``."""
    if record.error:
        return "failed"
    if record.ended is not None:
        return "done"
    return "waiting" if record.arrived is None else "training"


class PlainLines:
    """View that prints a line every `PERIOD` seconds, for logs."""

    def __init__(self, title: str, start: float) -> None:
        self.title = title
        self.start = start
        self._next = start

    def __enter__(self) -> PlainLines:
        print(self.title, flush=True)
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def update(self, records: Sequence[Record], status: dict[str, Any]) -> None:
        now = time()
        done = all(record.ended is not None for record in records)
        if now < self._next and not done:
            return
        self._next = now + PERIOD
        count = sum(state(record) == "done" for record in records)
        cells = [
            f"{record.training.name} #{job['iteration']} {_number(job['normalized_loss'])}"
            for record in records
            if (job := status["jobs"].get(record.training.name))
        ]
        elapsed = f"{now - self.start:5.1f} s"
        print(f"  {elapsed}  {count}/{len(records)} done  {' | '.join(cells)}".rstrip(), flush=True)


class LiveTable:
    """View that redraws a table in place."""

    def __init__(self, title: str, start: float) -> None:
        from rich.live import Live

        self.title = title
        self.start = start
        self._live: AbstractContextManager[Any] = Live(refresh_per_second=8)

    def __enter__(self) -> LiveTable:
        self._live.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._live.__exit__(*error)  # type: ignore[arg-type]

    def update(self, records: Sequence[Record], status: dict[str, Any]) -> None:
        from rich.table import Table

        table = Table(title=f"{self.title} · {time() - self.start:.0f} s", title_justify="left")
        table.add_column("job", no_wrap=True)
        for heading in ("iteration", "normalized loss", "predicted fall", "threads"):
            table.add_column(heading, justify="right")
        table.add_column("workers", no_wrap=True)
        table.add_column("loss reduction", no_wrap=True)
        numbers = _worker_numbers(status)
        for record in records:
            job = status["jobs"].get(record.training.name)
            table.add_row(*_row(record, job, numbers), style=_STYLES[state(record)])
        self._live.update(table)  # type: ignore[attr-defined]


_STYLES = {"waiting": "dim", "training": "", "done": "green", "failed": "red"}


def _row(record: Record, job: dict[str, Any] | None, numbers: dict[str, int]) -> list[str]:
    if job is None or state(record) != "training":
        reports = str(len(record.losses)) if record.losses else ""
        bar = bar_of(1.0) if state(record) == "done" else ""
        return [record.training.name, reports, "", "", "", state(record), bar]
    return [
        record.training.name,
        str(job["iteration"]),
        _number(job["normalized_loss"]),
        _number(job["predicted"]),
        f"{job['share']:.2f}",
        " ".join(str(numbers.get(worker, "?")) for worker in sorted(job["workers"])),
        bar_of(1.0 - job["normalized_loss"]),
    ]


def _worker_numbers(status: dict[str, Any]) -> dict[str, int]:
    """Return short names for the workers in use: their ranks by address."""
    workers = {worker for job in status["jobs"].values() for worker in job["workers"]}
    return {worker: number for number, worker in enumerate(sorted(workers))}


def _number(value: float | None) -> str:
    return "" if value is None or math.isnan(value) else f"{value:.3f}"


def bar_of(fraction: float) -> str:
    """Return a text bar for a fraction in [0, 1]; nan counts as 0."""
    if math.isnan(fraction):
        fraction = 0.0
    eighths = round(max(0.0, min(1.0, fraction)) * _BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")).ljust(_BAR, "·")
