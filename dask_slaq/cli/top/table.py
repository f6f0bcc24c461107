"""Table of jobs of ``dask slaq top``, in which only what has changed is written anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text
from textual.widgets import DataTable

from dask_slaq.cli.status_tables import COLUMNS, cell
from dask_slaq.cli.text import printable
from dask_slaq.core.job_columns import Row
from dask_slaq.core.text import shortened as cut_in_the_middle

__all__ = ["JobsTable", "shortened"]

_STYLES = {"running": "green", "waiting": "yellow", "paused": "magenta", "stopping": "red"}
#: Characters of a job's or owner's name that are shown. All are in the explanation.
_LONGEST = 24


class _Name(Text):
    """Cell with the name of a job, which may be shown shortened."""

    job: str


class JobsTable(DataTable[Text]):
    """Table of jobs, sorted by one of `COLUMNS`. The chosen job stays chosen where it goes."""

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

    def show(self, jobs: Sequence[Row], sorted_by: int, upwards: bool) -> None:
        """Show jobs from the top to the bottom, and mark a column's heading."""
        chosen, row, scroll = self.job, self.cursor_row, self.scroll_offset
        if self._heading != (sorted_by, upwards):
            self._heading = sorted_by, upwards
            self._add_columns(sorted_by, upwards)
        order = {job["job"]: place for place, job in enumerate(jobs)}
        for name in self._texts.keys() - order.keys():
            self.remove_row(name)
            del self._texts[name]
        for job in jobs:
            self._show_job(job)
        if [row.key.value for row in self.ordered_rows] != list(order):
            self.sort(COLUMNS[0].name, key=lambda cell: order[cell.job])
        if order:
            known = chosen is not None and chosen in self._texts
            at = self.get_row_index(chosen) if known else min(row, len(order) - 1)  # type: ignore
            if at != self.cursor_row or not known:
                self.move_cursor(row=at, animate=False, scroll=False)
                self.scroll_to(scroll.x, scroll.y, animate=False)

    def _add_columns(self, sorted_by: int, upwards: bool) -> None:
        self.clear(columns=True)
        self._texts.clear()
        for k, column in enumerate(COLUMNS):
            heading = column.heading or column.name
            self._width[column.name] = len(heading)
            mark = (" ▲" if upwards else " ▼") if k == sorted_by else ""
            side = "left" if column.left else "right"
            self.add_column(Text(heading + mark, justify=side), key=column.name)

    def _show_job(self, job: Row) -> None:
        name, texts = job["job"], [cell(column, job) for column in COLUMNS]
        before = self._texts.get(name)
        if before is None:
            cells = [_cell(name, k, text) for k, text in enumerate(texts)]
            for column, new in zip(COLUMNS, cells, strict=True):
                self._width[column.name] = max(new.cell_len, self._width[column.name])
            self.add_row(*cells, key=name)
        elif before != texts:
            for k, text in enumerate(texts):
                if text != before[k]:
                    key, new = COLUMNS[k].name, _cell(name, k, text)
                    # To look for a smaller width, Textual would measure the whole column.
                    wider = new.cell_len > self._width[key]
                    self._width[key] = max(new.cell_len, self._width[key])
                    self.update_cell(name, key, new, update_width=wider)
        self._texts[name] = texts


def shortened(name: str) -> str:
    """Return a name without control characters, and not too long; its end stays."""
    return cut_in_the_middle(printable(name), _LONGEST)


def _cell(name: str, k: int, text: str) -> Text:
    """Return a cell of column `k`, as Text: markup in a user's names is not interpreted."""
    column = COLUMNS[k]
    if column.name in ("job", "owner"):
        text = shortened(text)
    style = _STYLES.get(text, "") if column.name == "state" else ""
    if k == 0:
        first = _Name(text, style, justify="left")
        first.job = name
        return first
    return Text(text, style, justify="left" if column.left else "right")
