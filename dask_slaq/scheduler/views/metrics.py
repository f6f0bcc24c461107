"""Prometheus metrics on the scheduler's ``/metrics``; `families` has them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.current import registered_plugin

if TYPE_CHECKING:
    from distributed import Scheduler


__all__ = ["add_metrics"]

logger = logging.getLogger(__name__)


def add_metrics(scheduler: Scheduler) -> None:
    """Add the metrics of this package to the scheduler's ``/metrics``, once per process."""
    try:
        import prometheus_client
        from distributed.http.scheduler.prometheus import core
    except ImportError:
        logger.info("no metrics of jobs on /metrics: pip install prometheus-client")
        return

    class SlaqMetrics(core.PrometheusCollector):  # type: ignore[misc]
        """Collector of the scheduler that is scraped, which Dask sets as `server`."""

        def __init__(self, server: Scheduler) -> None:
            super().__init__(server)
            self.subsystem = "slaq"

        def describe(self) -> list[Any]:
            return []  # otherwise registering would collect

        def collect(self) -> Iterator[Any]:
            try:
                plugin = registered_plugin(self.server)
                found = []
                if plugin is not None:
                    from dask_slaq.scheduler.views.families import families

                    made = partial(families, plugin, self.build_name)
                    found = plugin.shown.get("metrics", made)
            except Exception:  # it would take all other metrics along
                logger.exception("the metrics of jobs could not be collected")
                found = []
            yield from found

    collectors = core.PrometheusHandler._collectors
    known = core.COLLECTORS if collectors is None else [type(each) for each in collectors]
    if any(kind.__name__ == SlaqMetrics.__name__ for kind in known):
        return
    if collectors is None:  # Dask makes them at the first scrape
        core.COLLECTORS.append(SlaqMetrics)
    else:
        collector = SlaqMetrics(scheduler)
        prometheus_client.REGISTRY.register(collector)
        core.PrometheusHandler._collectors = (*collectors, collector)
