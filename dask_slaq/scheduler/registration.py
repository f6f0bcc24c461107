"""Registration of the plugin: what it replaces, who may do it, and what is said if it fails."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from distributed import Scheduler
from distributed.comm.core import Comm
from distributed.core import error_message
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.config import ROWS, PluginSettings, settings
from dask_slaq.core.errors import InvalidSetting, NotAllowed, SlaqError
from dask_slaq.core.settings import NOT_STARTED
from dask_slaq.scheduler.board import add_pages
from dask_slaq.scheduler.current import RunningPlugin, current_plugin
from dask_slaq.scheduler.requests import audit

logger = logging.getLogger(__name__)


def others_to_replace(scheduler: Scheduler, kind: type[RunningPlugin]) -> list[RunningPlugin]:
    """Return the failed or idle plugins of class `kind` that a new one on `scheduler` replaces.

    Raises `InvalidSetting` if one of them runs jobs and has not failed.
    """
    plugins: Iterable[Any] = scheduler.plugins.values()
    others = [plugin for plugin in plugins if isinstance(plugin, kind)]
    if (before := current_plugin(scheduler)) is not None and before not in others:
        before.stop()  # it was unregistered and has not noticed yet
    if jobs := [name for p in others if p.failed is None for name in p.jobs.reports]:
        raise InvalidSetting(
            "the scheduler runs jobs under a SlaqPlugin already, and they must end "
            "before another one is registered: " + ", ".join(jobs)
        )
    if left := [name for p in others for name in p.jobs.reports]:
        logger.warning(
            "a SlaqPlugin that failed is replaced; its jobs continue as unowned work until "
            "they are opened again: %s",
            ", ".join(left),
        )
    return others


def with_settings_of_machine(
    scheduler: Scheduler, given: PluginSettings
) -> tuple[PluginSettings, PluginSettings]:
    """Return the settings of a plugin that a client registers, and those of the machine.

    Raises `NotAllowed` if the machine has set ``slaq.lock``.
    """
    before = current_plugin(scheduler)
    machine = settings() if before is None else before.machine
    if machine.lock:
        raise NotAllowed(
            "clients may not register SlaqPlugin on this scheduler (slaq.lock): who runs it does, "
            "by --preload dask_slaq"
        )
    has_last_word = (name for name, row in ROWS.items() if row["of_machine"])
    ours = {name: value for name in has_last_word if (value := getattr(machine, name))}
    return replace(given, **ours), machine


def watch(scheduler: Scheduler, kind: type[RunningPlugin]) -> None:
    """Record who registers and unregisters plugins of class `kind`, and refuse it if locked."""
    handlers = scheduler.handlers
    register = handlers["register_scheduler_plugin"]
    unregister = handlers["unregister_scheduler_plugin"]
    if hasattr(register, "watched"):
        return

    replaced: set[str] = set()  # names of plugins that may be unregistered still

    async def registering(comm: Comm, **message: Any) -> Any:
        before = current_plugin(scheduler)
        refused, found = None, None
        try:
            found = await register(**message)
        except SlaqError as error:
            refused, found = error, error_message(error, status="uncaught-error")
        now, plugins = current_plugin(scheduler), scheduler.plugins
        if now is not None and now is not before:  # one of another name would follow all tasks
            for name in [n for n, p in plugins.items() if isinstance(p, kind) and p is not now]:
                del plugins[name]
                replaced.add(name)
        if refused is not None or now is not before:
            policy = "" if now is None or refused else f" with policy {now.settings.policy}"
            what = f"register SlaqPlugin{policy}"
            audit.audit(scheduler, what, where=comm.peer_address, refused=refused)
        return found

    async def unregistering(comm: Comm, name: str) -> Any:
        plugin: Any = scheduler.plugins.get(name)
        if plugin is None and name in replaced:
            return replaced.discard(name)
        if not isinstance(plugin, kind):
            return await unregister(name=name)
        what, where = "unregister SlaqPlugin", comm.peer_address
        if plugin.machine.lock:
            error = NotAllowed("clients may not unregister SlaqPlugin (slaq.lock)")
            audit.audit(scheduler, what, where=where, refused=error)
            return error_message(error, status="uncaught-error")
        found = await unregister(name=name)
        audit.audit(scheduler, what, where=where)
        plugin.run_once()  # it notices that, and gives every task back
        return found

    registering.watched = True  # type: ignore[attr-defined]
    handlers["register_scheduler_plugin"] = registering
    handlers["unregister_scheduler_plugin"] = unregistering


def forget_failure(scheduler: Scheduler) -> None:
    """Drop the stand-in, because a plugin has started."""
    scheduler.plugins.pop(NOT_STARTED, None)
    scheduler.task_metadata.pop(NOT_STARTED, None)


class NotStarted(SchedulerPlugin):
    """Stand-in for a plugin that did not start: tells clients and the board why, until one does.

    If `strict`, the scheduler does not start either.
    """

    name = NOT_STARTED

    def __init__(self, scheduler: Scheduler, error: Exception, strict: bool) -> None:
        self.error, self.strict = error, strict
        known = isinstance(error, SlaqError)
        self.why = str(error) if known else f"{type(error).__name__}: {error}"
        self.restart(scheduler)
        try:
            add_pages(scheduler)
        except Exception:  # nothing that people look at may touch scheduling
            logger.exception("the board of dask_slaq could not be added")

    async def start(self, scheduler: Scheduler) -> None:
        """Keep the scheduler from starting if that is wanted: it starts plugins after preloads."""
        if self.strict:
            raise self.error

    def restart(self, scheduler: Scheduler) -> None:
        """Tell clients why. A restart of the cluster drops all metadata."""
        scheduler.task_metadata[NOT_STARTED] = self.why
