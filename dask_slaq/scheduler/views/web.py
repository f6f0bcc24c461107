"""Pages of the scheduler's web server: all jobs as JSON, and Dask's page of a task.

``/json/slaq.json`` is the status as of the last decision; a task's page says in addition why it
waits, when it is opened.
"""

from __future__ import annotations

import json
import logging
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

from distributed.http.scheduler.info import Task
from distributed.http.utils import RequestHandler, get_handlers

from dask_slaq.core.text import without_nan
from dask_slaq.scheduler.current import registered_plugin
from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.views.everything import overview
from dask_slaq.scheduler.views.reasons import positions, reason

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.current import RunningPlugin

__all__ = ["add_web_pages", "routes", "why_it_waits"]

logger = logging.getLogger(__name__)


class StatusJSON(RequestHandler):  # type: ignore[misc]
    """Status as JSON, with null for nan and infinity."""

    @guarded_as(always=True)
    def get(self) -> None:
        """Answer a request."""
        plugin = registered_plugin(self.server)
        self.set_header("Content-Type", "application/json")
        if plugin is None:
            self.write('{"registered": false}')
        else:
            self.write(plugin.shown.get("json", partial(_as_json, plugin)))

    def fall_back(self, error: BaseException) -> None:
        """Answer with an error."""
        logger.error("the status of jobs could not be shown", exc_info=error)
        self.send_error(500)


def _as_json(plugin: RunningPlugin) -> str:
    found = {"registered": True, **overview(plugin)}
    return json.dumps(without_nan(found), allow_nan=False)


class TaskPage(Task):  # type: ignore[misc]
    """Page of a task with one more row."""

    def render_string(self, template_name: str, **kwargs: Any) -> bytes:
        """Return the page."""
        page: bytes = super().render_string(template_name, **kwargs)
        if not (text := self.why(kwargs.get("Task"))):
            return page
        row = f"<tr><th> Slaq </th><td> {escape(text)} </td></tr>"
        return page.replace(b"</table>", row.encode() + b"</table>", 1)

    @guarded_as(always=True)
    def why(self, key: Any) -> str:
        """Return what a task waits for."""
        plugin = registered_plugin(self.server)
        return "" if plugin is None else why_it_waits(plugin, key)

    def fall_back(self, error: BaseException) -> None:
        """Log an error: the page is shown as Dask has it."""
        logger.error("Dask's page of a task is shown without its job", exc_info=error)


#: Routes of this module, in the form of ``distributed.scheduler.http.routes``.
routes: list[tuple[str, type, dict[str, Any]]] = [
    ("json/slaq.json", StatusJSON, {}),
    (r"info/task/(.*).html", TaskPage, {}),
]


def why_it_waits(plugin: RunningPlugin, key: Any) -> str:
    """Return in words which job a task belongs to, and what it waits for if it is held.

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
    trials, failed = plugin.searches.describe, plugin.failed is not None
    why = reason(plugin.jobs, pool.name, positions(pools), trials, failed)
    return f"{whose}: {why}{among}"


def add_web_pages(scheduler: Scheduler) -> None:
    """Add the pages to the web server of a scheduler, once."""
    application = getattr(scheduler, "http_application", None)
    if application is None or getattr(application, "has_slaq_json", False):
        return
    handlers = get_handlers(scheduler, [__name__], prefix=_prefix(application))
    application.add_handlers(r".*", handlers)
    application.has_slaq_json = True


def _prefix(application: Any) -> str:
    """Return the prefix of the web server's routes, which the scheduler does not keep."""
    for rule in application.wildcard_router.rules:
        path = getattr(rule.matcher, "regex", None)
        pattern = "" if path is None else path.pattern.rstrip("$")
        if pattern.endswith("/health"):
            return str(pattern.removesuffix("health"))
    return "/"
