"""Live view of jobs, in a notebook or a terminal, until they end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import current_client
from dask_slaq.client.queries import status
from dask_slaq.client.status_html import Status

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["progress"]


def progress(
    jobs: str | Sequence[str] | None = None,
    client: Client | None = None,
    *,
    interval: float = 0.5,
    notebook: bool | None = None,
) -> Any:
    """Show jobs live until they have ended.

    In a notebook this returns a widget at once, which updates itself; ipywidgets must be
    installed, or the table is shown once. In a terminal it blocks until the jobs have ended.

    Parameters
    ----------
    jobs : str or sequence of str, optional
        Names of jobs; by default all that run now.
    client : distributed.Client, optional
        Defaults to the current client; it must not be asynchronous.
    interval : float
        Seconds between two updates.
    notebook : bool, optional
        Whether this is a notebook; detected by default.

    Returns
    -------
    ipywidgets.HTML, Status or None
        The widget or table in a notebook.
    """
    client = current_client(client)
    named = [jobs] if isinstance(jobs, str) else None if jobs is None else list(jobs)
    first = status(client)
    names = list(first["jobs"]) if named is None else named
    if _in_notebook() if notebook is None else notebook:
        return _widget(client, names, interval)
    _in_terminal(client, names, interval)
    return None


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    return instance is not None and "IPKernelApp" in instance.config


def _of(found: Status, names: Sequence[str]) -> Status:
    """Return the status of some jobs alone."""
    jobs = {name: found["jobs"][name] for name in names if name in found["jobs"]}
    return Status({**found, "jobs": jobs})


def _widget(client: Client, names: Sequence[str], interval: float) -> Any:
    try:
        from ipywidgets import HTML
    except ImportError:
        return _of(status(client), names)
    from tornado.ioloop import PeriodicCallback

    from dask_slaq.client.connection import request

    widget = HTML(_of(status(client), names)._repr_html_())

    async def update() -> None:
        try:
            found = _of(Status(await request(client, "slaq_status")), names)
            widget.value = found._repr_html_()
        except Exception:  # the cluster is gone: the last table stays
            timer.stop()
            return
        if not found["jobs"]:
            timer.stop()

    timer = PeriodicCallback(update, 1000 * interval)
    client.loop.add_callback(timer.start)
    return widget


def _in_terminal(client: Client, names: Sequence[str], interval: float) -> None:
    try:
        from rich.live import Live
        from rich.table import Table
    except ImportError as error:
        raise ImportError("progress() needs rich: pip install 'dask-slaq[demo]'") from error

    def table(found: Status) -> Table:
        shown = Table("job", "owner", "state", "iteration", "loss", "threads", "what it does")
        for name, job in found["jobs"].items():
            shown.add_row(
                *(name, job["owner"], job["state"], str(job["iteration"])),
                *(f"{job['loss']:.4g}", f"{job['share']:.2g}", job["reason"]),
            )
        return shown

    found = _of(status(client), names)
    with Live(table(found), auto_refresh=False) as live:
        while found["jobs"]:
            time.sleep(interval)
            found = _of(status(client), names)
            if found["jobs"]:
                live.update(table(found), refresh=True)
