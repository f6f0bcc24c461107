"""Live view of jobs, in a notebook or a terminal, until they end."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import current_client, go_without, request
from dask_slaq.client.notebook import in_notebook
from dask_slaq.client.status_html import Status
from dask_slaq.core.errors import NoPlugin
from dask_slaq.core.settings import ALERT_TOPIC, ENDS

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
        The widget or table in a notebook. It ends with the last loss and the seconds of each job.
        None in a terminal, and where the scheduler does not run the plugin.
    """
    client = current_client(client)
    named = [jobs] if isinstance(jobs, str) else None if jobs is None else list(jobs)
    followed = Followed(client, named)
    try:
        if in_notebook() if notebook is None else notebook:
            return _widget(followed, client, interval)
        _in_terminal(followed, client, interval)
    except NoPlugin as error:
        go_without(client, error)
    return None


class Followed:
    """Jobs that are followed until they have ended.

    Parameters
    ----------
    client : distributed.Client
    names : sequence of str, optional
        Names of the jobs; by default all that run at the first look.
    """

    def __init__(self, client: Client, names: Sequence[str] | None) -> None:
        self._client, self._names = client, names
        self._last: dict[str, dict[str, Any]] = {}
        self.running = True

    async def look(self) -> Status:
        """Return the status of the jobs; of those that have ended, the last one."""
        found = Status(await request(self._client, "slaq_status"))
        if self._names is None:
            self._names = list(found["jobs"])
        running = {name: found["jobs"][name] for name in self._names if name in found["jobs"]}
        self._last.update(running)
        ended = [
            name
            for name in self._names
            if name not in running and self._last.get(name, {}).get("state") not in ENDS
        ]
        if ended:
            # Their last reports may have come after the last look.
            for _, event in await self._client.scheduler.events(topic=ALERT_TOPIC):
                if event.get("event") in ENDS and event["job"] in ended:
                    self._last[event["job"]] = _ended(event)
        for name in ended:
            if name in self._last:
                state = self._last[name]["state"]
                state = state if state in ENDS else "done"
                self._last[name] = {**self._last[name], "state": state, "share": 0.0}
        self.running = bool(running)
        jobs = {name: self._last[name] for name in self._names if name in self._last}
        return Status({**found, "jobs": jobs})


def _ended(event: dict[str, Any]) -> dict[str, Any]:
    """Return the last status of a job from the alert that it ended."""
    loss = event.get("loss")
    return {
        "owner": event.get("owner", ""),
        "state": event["event"],
        "iteration": event.get("iteration", 0),
        "loss": math.nan if loss is None else loss,
        "share": 0.0,
        "reason": f"trained for {event.get('seconds', math.nan):.3g} s",
    }


def _widget(followed: Followed, client: Client, interval: float) -> Any:
    first = client.sync(followed.look)
    try:
        from ipywidgets import HTML
    except ImportError:
        return first
    from tornado.ioloop import PeriodicCallback

    widget = HTML(first._repr_html_())

    async def update() -> None:
        try:
            widget.value = (await followed.look())._repr_html_()
        except Exception:  # the cluster is gone: the last table stays
            timer.stop()
            return
        if not followed.running:
            timer.stop()

    timer = PeriodicCallback(update, 1000 * interval)
    client.loop.add_callback(timer.start)
    return widget


def _in_terminal(followed: Followed, client: Client, interval: float) -> None:
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
                *(
                    "" if math.isnan(job["loss"]) else f"{job['loss']:.4g}",
                    f"{job['share']:.2g}",
                    job["reason"],
                ),
            )
        return shown

    with Live(table(client.sync(followed.look)), auto_refresh=False) as live:
        while followed.running:
            time.sleep(interval)
            live.update(table(client.sync(followed.look)), refresh=True)
