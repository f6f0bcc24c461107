"""Addition of the board's pages to a dashboard that already runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

from distributed import Scheduler

logger = logging.getLogger(__name__)

#: Address of the board on the dashboard, and name of its tab.
PATH, PAGE = "/slaq", "slaq"
#: Page of the models of a search.
SEARCH = "slaq-search"
#: Plots of the board that have a page each.
PLOTS = ("loss", "threads", "shares", "usage", "jobs", "task-stream")


def add_pages(scheduler: Scheduler) -> bool:
    """Add the board and its single plots to the scheduler's dashboard, once.

    Returns whether the scheduler has the pages now; without a dashboard it does not.
    """
    application = getattr(scheduler, "http_application", None)
    applications: Any = getattr(application, "applications", ())
    # By name: where it is, Bokeh is imported already.
    kinds = ((each, [kind.__name__ for kind in type(each).__mro__]) for each in applications)
    app = next((each for each, names in kinds if "BokehTornado" in names), None)
    if app is None:
        if any(handler == "MissingBokeh" for handler in _handlers(application)):
            logger.warning("no board: bokeh is not installed: pip install 'dask-slaq[dashboard]'")
        else:
            logger.info("no board: the scheduler has no dashboard")
        return False
    if PATH in app.applications:
        return True
    from distributed.dashboard.scheduler import template_variables

    # Dask caches these lists, so that a tab or plot added here appears on all of its pages.
    variables = template_variables(scheduler)
    extra = {"prefix": app.prefix + "/", **variables}
    # A scheduler whose pages nobody opens does not load them.
    _add(app, PATH, partial(_draw, "pages", "board", (scheduler, extra)))
    _add(app, f"/{SEARCH}", partial(_draw, "search_page", "search_page", (scheduler, extra)))
    for plot in PLOTS:
        title, url = f"Slaq {plot.replace('-', ' ').title()}", f"individual-slaq-{plot}"
        given = (scheduler, extra, plot, title)
        _add(app, f"/{url}", partial(_draw, "pages", "single_plot", given))
        variables["plots"].append({"url": url, "name": title})
    variables["plots"].sort(key=lambda plot: plot["name"])
    if PAGE not in variables["pages"]:
        variables["pages"].insert(min(3, len(variables["pages"])), PAGE)
    return True


def _handlers(router: Any) -> Iterator[str]:
    """Yield the names of what serves the addresses of a scheduler."""
    router = getattr(router, "default_router", router)
    for rule in getattr(router, "rules", ()):
        yield getattr(rule.target, "__name__", "")
        yield from _handlers(rule.target)


def _draw(module: str, name: str, given: tuple[Any, ...], doc: Any) -> None:
    """Draw a page by what is `given` for it."""
    getattr(import_module(f"dask_slaq.scheduler.board.{module}"), name)(*given, doc)


def _add(app: Any, url: str, document: Callable[[Any], None]) -> None:
    """Serve a document at an address of a running Bokeh application."""
    from bokeh.application import Application
    from bokeh.application.handlers.document_lifecycle import DocumentLifecycleHandler
    from bokeh.application.handlers.function import FunctionHandler
    from bokeh.server.contexts import ApplicationContext
    from bokeh.server.tornado import create_static_handler
    from bokeh.server.urls import per_app_patterns
    from tornado.ioloop import IOLoop

    application = Application(FunctionHandler(document))
    application.add(DocumentLifecycleHandler())
    context = ApplicationContext(application, io_loop=IOLoop.current(), url=url)
    app.applications[url] = context
    patterns = [
        (
            app.prefix + url + suffix,
            handler,
            {"application_context": context, "bokeh_websocket_path": f"{app.prefix}{url}/ws"},
        )
        for suffix, handler in per_app_patterns
    ]
    patterns.append(create_static_handler(app.prefix, url, application))
    app.add_handlers(r".*", patterns)
    context.run_load_hook()
