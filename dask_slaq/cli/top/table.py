"""Table of jobs of ``dask slaq top``, in which only what has changed is written anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text
from textual.widgets import DataTable

from dask_slaq.cli.status_tables import JOB_COLUMNS
from dask_slaq.cli.text import printable

__all__ = ["JobsTable", "shortened"]

_STYLES = {"running": "green", "waiting": "yellow", "paused": "magenta", "stopping": "red"}
#: Characters of a job's or owner's name that are shown. All are in the explanation.
_LONGEST = 24


class _Name(Text):
    """Cell with the name of a job, which may be shown shortened."""

    job: str


class JobsTable(DataTable[Text]):
    """Table of jobs, sorted by one of `JOB_COLUMNS`. The chosen job stays chosen where it goes."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cursor_type="row", zebra_stripes=True, **options)
        self._heading: tuple[int, bool] | None = None
        self._texts: dict[str, list[str]] = {}
        self._width: dict[str, int] = {}  # of the widest cell that a column has had

    @property
    def job(self) -> str | None:
        """Name of the chosen job."""
        if not self.is_valid_row_index(self.cursor_row):
            return None
        return self.coordinate_to_cell_key(self.cursor_coordinate).row_key.value

    def show(
        self, jobs: Mapping[str, Any], order: Sequence[str], sorted_by: int, upwards: bool
    ) -> None:
        """Show the jobs.

        Parameters
        ----------
        jobs : mapping of str to dict
            Status by job.
        order : sequence of str
            Names from the top to the bottom.
        sorted_by : int
            Index of the column whose heading is marked.
        upwards : bool
            Whether the mark points upwards.
        """
        chosen, row, scroll = self.job, self.cursor_row, self.scroll_offset
        if self._heading != (sorted_by, upwards):
            self._heading = sorted_by, upwards
            self._add_columns(sorted_by, upwards)
        for name in self._texts.keys() - jobs.keys():
            self.remove_row(name)
            del self._texts[name]
        for name in order:
            self._show_job(name, jobs[name])
        if [row.key.value for row in self.ordered_rows] != list(order):
            rank = {name: place for place, name in enumerate(order)}
            self.sort(JOB_COLUMNS[0].heading, key=lambda cell: rank[cell.job])
        if order:
            known = chosen is not None and chosen in self._texts
            at = self.get_row_index(chosen) if known else min(row, len(order) - 1)  # type: ignore
            if at != self.cursor_row or not known:
                self.move_cursor(row=at, animate=False, scroll=False)
                self.scroll_to(scroll.x, scroll.y, animate=False)

    def _add_columns(self, sorted_by: int, upwards: bool) -> None:
        self.clear(columns=True)
        self._texts.clear()
        self._width = {column.heading: len(column.heading) for column in JOB_COLUMNS}
        for k, column in enumerate(JOB_COLUMNS):
            mark = (" ▲" if upwards else " ▼") if k == sorted_by else ""
            side = "left" if column.left else "right"
            self.add_column(Text(column.heading + mark, justify=side), key=column.heading)

    def _show_job(self, name: str, job: Mapping[str, Any]) -> None:
        texts = [column.text(name, job) for column in JOB_COLUMNS]
        before = self._texts.get(name)
        if before is None:
            cells = [_cell(name, k, text) for k, text in enumerate(texts)]
            for column, cell in zip(JOB_COLUMNS, cells, strict=True):
                self._width[column.heading] = max(cell.cell_len, self._width[column.heading])
            self.add_row(*cells, key=name)
        elif before != texts:
            for k, text in enumerate(texts):
                if text != before[k]:
                    heading, cell = JOB_COLUMNS[k].heading, _cell(name, k, text)
                    # To look for a smaller width, Textual would measure the whole column.
                    wider = cell.cell_len > self._width[heading]
                    self._width[heading] = max(cell.cell_len, self._width[heading])
                    self.update_cell(name, heading, cell, update_width=wider)
        self._texts[name] = texts


def shortened(name: str) -> str:
    """Return a name without control characters, and not too long."""
    name = printable(name)
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"


def _cell(name: str, k: int, text: str) -> Text:
    """Return a cell of column `k`, as Text: markup in a user's names is not interpreted."""
    column = JOB_COLUMNS[k]
    if column.heading in ("job", "owner"):
        text = shortened(text)
    style = _STYLES.get(text, "") if column.heading == "state" else ""
    if k == 0:
        first = _Name(text, style, justify="left")
        first.job = name
        return first
    return Text(text, style, justify="left" if column.left else "right")
