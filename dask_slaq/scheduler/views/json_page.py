"""Status of all jobs as JSON, at ``/json/slaq.json`` of the scheduler's web server."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from distributed.http.utils import RequestHandler, get_handlers

from dask_slaq.scheduler.views import task_page

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["add_json", "routes"]


class StatusJSON(RequestHandler):  # type: ignore[misc]
    """Status as JSON, with null for nan and infinity."""

    def get(self) -> None:
        """Answer a request."""
        plugin = self.server.plugins.get("slaq")
        found: dict[str, Any] = {"registered": plugin is not None}
        if plugin is not None:
            found.update(plugin.messages.status_now())
        self.set_header("Content-Type", "application/json")
        self.write(json.dumps(_finite(found), allow_nan=False))


#: Routes of this module, in the form of ``distributed.scheduler.http.routes``.
routes: list[tuple[str, type, dict[str, Any]]] = [("json/slaq.json", StatusJSON, {})]


def add_json(scheduler: Scheduler) -> None:
    """Add the page, and the reason on Dask's task page, to a scheduler's web server, once."""
    application = getattr(scheduler, "http_application", None)
    if application is None or getattr(application, "has_slaq_json", False):
        return
    handlers = get_handlers(scheduler, [__name__, task_page.__name__], prefix=_prefix(application))
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


def _finite(value: Any) -> Any:
    """Return a value with None for every nan and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
