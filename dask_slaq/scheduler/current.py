"""The plugin of a scheduler, under whatever name it is registered."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["current_plugin", "registered_plugin"]


def current_plugin(scheduler: Scheduler) -> SlaqPlugin | None:
    """Return the plugin that handles a scheduler's requests, even if it was unregistered."""
    return getattr(scheduler.handlers.get("slaq_open"), "plugin", None)


def registered_plugin(scheduler: Scheduler) -> SlaqPlugin | None:
    """Return the plugin of a scheduler, None if there is none or it was unregistered."""
    plugin = current_plugin(scheduler)
    return plugin if plugin is not None and plugin.registered else None
