"""Progress display during a run: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Collection
from contextlib import ExitStack
from typing import Any

from distributed.metrics import time

from dask_slaq.demo.local import Run

#: Seconds between plain lines, and most rows of a table.
PERIOD, ROWS = 5.0, 14
_STYLES = {"training": "", "waiting": "yellow", "done": "green", "failed": "red", "to come": "dim"}


class View(ExitStack):
    """Display of a run, by a context manager: with rich in a terminal a table, else lines."""

    def __init__(self) -> None:
        super().__init__()
        self._next = time()
        self._live: Any = None
        if sys.stdout.isatty():
            try:
                from rich.live import Live
            except ImportError:
                print("For a live table install rich: pip install 'dask-slaq[demo]'")
            else:
                self._live = self.enter_context(Live(refresh_per_second=4))

    def update(self, run: Run, waiting: Collection[str] = (), last: bool = False) -> None:
        """Show the state of a `run`, in which the named trainings are `waiting`, if not `last`."""
        rows = [(t.state(waiting), t) for t in run.trainings]
        states = [state for state, _ in rows]
        count = ", ".join(f"{states.count(s)} {s}" for s in _STYLES if s in states)
        best = min((t.loss for state, t in rows if state == "done"), default=None)
        title = f"{run.way:>10} {time() - run.start:5.1f} s  {count}"
        title += f"; best that is done: {best:.3f}" if best is not None else ""
        if self._live:
            self._live.update(_table(title, rows))
        elif last or time() >= self._next:
            self._next += PERIOD
            print(title, flush=True)


def _table(title: str, rows: list[Any]) -> Any:
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold")
    for number, column in enumerate(("", "step", "loss", "state")):
        table.add_column(column, no_wrap=True, justify="right" if number else "left")
    for state, training in sorted(rows, key=lambda row: row[1].loss)[:ROWS]:
        if training.curve:
            steps = str(len(training.curve))
            table.add_row(training.name, steps, f"{training.loss:.3f}", state, style=_STYLES[state])
    return table
