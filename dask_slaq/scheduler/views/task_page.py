"""Dask's page of a task, which says in addition why a held task waits.

The text is made when somebody opens the page.
"""

from __future__ import annotations

import logging
from html import escape
from typing import TYPE_CHECKING, Any

from distributed.http.scheduler.info import Task

from dask_slaq.scheduler.views.explain import positions, reason

if TYPE_CHECKING:
    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["routes", "why_it_waits"]

logger = logging.getLogger(__name__)


def why_it_waits(plugin: SlaqPlugin, key: Any) -> str:
    """Return in words which job a task belongs to, and what it waits for if it is held.

    Parameters
    ----------
    plugin : SlaqPlugin
    key : str or tuple
        Key of a task.

    Returns
    -------
    str
        Empty for a task that the plugin does not know.
    """
    pools = plugin.pools
    pool, ts = pools.tracker.owner.get(key), plugin.scheduler.tasks.get(key)
    if pool is None or ts is None or pools.pools.get(pool.name) is not pool:
        return ""
    whose = f"job {pool.name}" if pool.reports else "no job"
    owner = plugin.jobs.owner.get(pool.name)
    whose += f" of {owner}" if owner else ""
    if (sent := pool.running.get(ts)) is not None:
        return f"{whose}: {sent.why or 'sent by Dask'}"
    if ts not in pool.ready:
        return whose
    others = len(pool.ready) - 1
    among = f" ({others} other ready tasks of it wait as well)" if others else ""
    return f"{whose}: {reason(plugin, pool.name, positions(plugin))}{among}"


class TaskPage(Task):  # type: ignore[misc]
    """Page of a task with one more row."""

    def render_string(self, template_name: str, **kwargs: Any) -> bytes:
        """Return the page."""
        page: bytes = super().render_string(template_name, **kwargs)
        try:
            plugin = self.server.plugins.get("slaq")
            text = "" if plugin is None else why_it_waits(plugin, kwargs.get("Task"))
        except Exception:
            logger.exception("Dask's page of a task is shown without its job")
            return page
        if not text:
            return page
        row = f"<tr><th> Slaq </th><td> {escape(text)} </td></tr>"
        return page.replace(b"</table>", row.encode() + b"</table>", 1)


#: Routes of this module, in the form of ``distributed.scheduler.http.routes``.
routes: list[tuple[str, type, dict[str, Any]]] = [(r"info/task/(.*).html", TaskPage, {})]
