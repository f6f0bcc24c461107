"""Status of all jobs, as a dict that notebooks show as a table."""

from __future__ import annotations

import math
from html import escape
from typing import Any

__all__ = ["Status"]

_COLUMNS = ("job", "owner", "state", "iteration", "loss", "threads", "reason")
# Notebooks align cells to the right, and headers as told.
_LEFT = ' style="text-align:left"'


class Status(dict[str, Any]):
    """Result of `status`: a dict with a table for notebooks."""

    def _repr_html_(self) -> str:
        """Return a table of all jobs."""
        failed = self.get("failed")
        title = f"policy <b>{escape(str(self.get('policy')))}</b>, {self.get('capacity')} threads"
        if failed:
            title += f", <b>plain Dask schedules: {escape(str(failed))}</b>"
        head = "".join(f"<th{_LEFT}>{name}</th>" for name in _COLUMNS)
        rows = "".join(_row(name, job) for name, job in self.get("jobs", {}).items())
        rows = rows or f'<tr><td colspan="{len(_COLUMNS)}"{_LEFT}>no job is running</td></tr>'
        return (
            f"<div>{title}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        )


def _row(name: str, job: dict[str, Any]) -> str:
    loss = job["loss"]
    cells = (
        name,
        job.get("owner", ""),
        job.get("state", ""),
        job["iteration"],
        f"{loss:.4g}" if math.isfinite(loss) else "",
        f"{job['share']:.2g}",
        job.get("reason", ""),
    )
    return "<tr>" + "".join(f"<td{_LEFT}>{escape(str(cell))}</td>" for cell in cells) + "</tr>"
