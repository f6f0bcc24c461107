"""Prometheus metrics on the scheduler's ``/metrics``.

Series by job exist while the job runs. Usage by owner survives the jobs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_slaq.core.job_columns import JOB_COLUMNS
from dask_slaq.scheduler.current import registered_plugin
from dask_slaq.scheduler.views.status import in_short, owners_of_jobs

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["FAMILIES", "add_metrics"]

logger = logging.getLogger(__name__)

#: Metrics by job: key in the status, help text.
BY_JOB = {column.name: column.about.capitalize() for column in JOB_COLUMNS if column.metric}
#: Metrics by owner: key in the status, name, help text.
BY_OWNER = {
    "core_seconds": ("owner_core_seconds", "Core-seconds used"),
    "finished_jobs": ("owner_finished_jobs", "Jobs that ended"),
    "loss_reduction": ("owner_loss_reduction", "Normalized loss reduction of jobs that ended"),
}
#: Names of all metrics, without the prefix ``dask_slaq_``, as they are scraped.
FAMILIES = (
    *("jobs", "holding", "failed", "owner_deserved_threads", "owner_got_threads"),
    "worker_factor",
    *(f"job_{key}" for key in BY_JOB),
    *(f"{name}_total" for name, _ in BY_OWNER.values()),
)


def add_metrics(scheduler: Scheduler) -> None:
    """Add the metrics of this package to the scheduler's ``/metrics``, once per process."""
    try:
        import prometheus_client
        from distributed.http.scheduler.prometheus import core
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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
                    found = plugin.shown.get("metrics", partial(self._families, plugin))
            except Exception:  # it would take all other metrics along
                logger.exception("the metrics of jobs could not be collected")
                found = []
            yield from found

        def _families(self, plugin: SlaqPlugin) -> list[Any]:
            return list(self._each_family(plugin))

        def _each_family(self, plugin: SlaqPlugin) -> Iterator[Any]:
            jobs = plugin.jobs
            yield self._gauge("jobs", "Running jobs", len(jobs.reports))
            yield self._gauge("holding", "Whether tasks are held", plugin.pools.tracker.holding)
            yield self._gauge("failed", "Whether plain Dask schedules", plugin.failed is not None)
            status = {name: job for name, job in jobs.status().items() if job["reports"]}
            for key, text in BY_JOB.items():
                values = {(name, job["owner"]): job[key] for name, job in status.items()}
                yield self._series(GaugeMetricFamily, f"job_{key}", text, ("job", "owner"), values)
            owners = {o: s for o, s in owners_of_jobs(jobs).items() if s["jobs"] or o in jobs.usage}
            counters = jobs.accounts.counters()
            if counters is not None:  # unknown, they would seem to begin at 0 again
                for key, (name, text) in BY_OWNER.items():
                    used = {(owner,): in_short(usage)[key] for owner, usage in counters.items()}
                    yield self._series(CounterMetricFamily, name, text, ("owner",), used)
            for key in ("deserved", "got"):
                known = {(o,): s[key] for o, s in owners.items() if s[key] is not None}
                name, text = f"owner_{key}_threads", f"Threads {key}"
                yield self._series(GaugeMetricFamily, name, text, ("owner",), known)

            factors = {(a,): plugin.speeds.factor(a) for a in self.server.workers}
            text = "How much longer tasks take on a worker than on a median one; 1 unless sure"
            yield self._series(GaugeMetricFamily, "worker_factor", text, ("worker",), factors)

        def _gauge(self, name: str, text: str, value: float) -> Any:
            return GaugeMetricFamily(self.build_name(name), text, value=float(value))

        def _series(
            self, kind: Any, name: str, text: str, labels: Sequence[str], values: dict[Any, float]
        ) -> Any:
            family = kind(self.build_name(name), text, labels=labels)
            for labelled, value in values.items():
                family.add_metric(labelled, value)
            return family

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
