"""The plugin of a scheduler, under whatever name it is registered, and what others read of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from distributed import Scheduler

from dask_slaq.config import PluginSettings
from dask_slaq.core.engine import Engine
from dask_slaq.core.runtime import WorkerSpeeds
from dask_slaq.run_history import RunHistory
from dask_slaq.scheduler.by_value import ByValue
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.owners.identity import Identity
from dask_slaq.scheduler.pools import Pools, TaskPools
from dask_slaq.scheduler.trials import Searches


class Shown:
    """Pages that are kept for `seconds` at most, or until a decision or event drops them.

    They take a walk over all unfinished tasks, and whoever reaches the port may ask for them.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pages: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a page, which `make` makes unless there is one."""
        since, page = self._pages.get(name, (-self._seconds, None))
        if monotonic() - since >= self._seconds:
            page = make()
            self._pages[name] = monotonic(), page
        return page

    def drop(self) -> None:
        """Make all pages anew when somebody looks next."""
        self._pages.clear()


class RunningPlugin(ABC):
    """What hooks, requests, pages and metrics read of the plugin of a scheduler, and ask of it.

    Modules below `SlaqPlugin` name this, and never the class that is made of them.
    """

    scheduler: Scheduler
    settings: PluginSettings
    machine: PluginSettings
    engine: Engine
    jobs: ScheduledJobs
    pools: Pools
    searches: Searches
    task_pools: TaskPools
    run_history: RunHistory
    identity: Identity
    speeds: WorkerSpeeds
    shown: Shown
    failed: str | None
    audited: deque[dict[str, Any]]
    subscribers: set[str]  # clients that are told all alerts
    scaling: Any  # `Scaling`, which limits Dask's adaptive target

    @property
    @abstractmethod
    def registered(self) -> bool:
        """Whether the plugin is registered on the scheduler, under any name."""

    @property
    @abstractmethod
    def by_value(self) -> ByValue:
        """What the number of workers is worth."""

    @abstractmethod
    def check_registered(self) -> None:
        """Raise `NoPlugin` if the plugin was unregistered."""

    @abstractmethod
    def alert(self, event: dict[str, Any]) -> None:
        """Tell an alert to its owner and to all clients."""

    @abstractmethod
    def began(self, name: str) -> None:
        """Make decisions from now on, because a job was opened."""

    @abstractmethod
    def changed(self) -> None:
        """Decide soon, because a job or worker came, went or changed."""

    @abstractmethod
    def end_job(self, name: str, outcome: str | None = None) -> None:
        """Forget a job."""

    @abstractmethod
    def fall_back(self, error: BaseException) -> None:
        """Leave every task to plain Dask from now on."""

    @abstractmethod
    def enter(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what the event loop has to do; an error makes the plugin fall back."""

    @abstractmethod
    def run_once(self) -> None:
        """Run one epoch."""

    @abstractmethod
    def set_policy(self, policy: str) -> None:
        """Decide by another policy from now on."""

    @abstractmethod
    def stop(self) -> None:
        """Give all tasks back to plain Dask and end all jobs."""


def current_plugin(scheduler: Scheduler) -> RunningPlugin | None:
    """Return the plugin that handles a scheduler's requests, even if it was unregistered."""
    return getattr(scheduler.handlers.get("slaq_open"), "plugin", None)


def registered_plugin(scheduler: Scheduler) -> RunningPlugin | None:
    """Return the plugin of a scheduler, None if there is none or it was unregistered."""
    plugin = current_plugin(scheduler)
    return plugin if plugin is not None and plugin.registered else None
