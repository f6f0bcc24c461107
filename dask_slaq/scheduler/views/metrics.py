"""Prometheus metrics on the scheduler's ``/metrics``; `families` has them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.current import registered_plugin
from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.views.families import families

if TYPE_CHECKING:
    from distributed import Scheduler


logger = logging.getLogger(__name__)


#: Collector of this process, which the registry of `prometheus_client` keeps.
_collector: Any = None


def add_metrics(scheduler: Scheduler) -> None:
    """Add the metrics of a scheduler to ``/metrics``, instead of those of an earlier one.

    All schedulers of a process serve the same registry, so they show those of the newest.
    """
    global _collector
    if _collector is not None:
        _collector.server = scheduler
        return
    try:
        import prometheus_client
        from distributed.http.prometheus import PrometheusCollector
    except ImportError:
        logger.info("no metrics of jobs on /metrics: pip install prometheus-client")
        return

    class SlaqMetrics(PrometheusCollector):  # type: ignore[misc]
        """Collector of a scheduler."""

        def __init__(self, server: Scheduler) -> None:
            super().__init__(server)
            self.subsystem = "slaq"

        def describe(self) -> list[Any]:
            return []  # otherwise registering would collect

        def collect(self) -> Iterator[Any]:
            yield from self.families()

        @guarded_as(always=True, otherwise=lambda self: [])  # others' metrics would go along
        def families(self) -> list[Any]:
            if (plugin := registered_plugin(self.server)) is None:
                return []
            made = partial(families, plugin, self.build_name)
            return list(plugin.shown.get("metrics", made))

        def fall_back(self, error: BaseException) -> None:
            logger.error("the metrics of jobs could not be collected", exc_info=error)

    _collector = SlaqMetrics(scheduler)
    prometheus_client.REGISTRY.register(_collector)
