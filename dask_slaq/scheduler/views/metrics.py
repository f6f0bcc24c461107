"""Prometheus metrics on the scheduler's ``/metrics``.

Series by job exist while the job runs. Usage by owner survives the jobs.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from dask_slaq.core.job_columns import JOB_COLUMNS
from dask_slaq.core.usage import OUTCOMES
from dask_slaq.scheduler.current import registered_plugin

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.current import RunningPlugin

__all__ = ["FAMILIES", "add_metrics"]

logger = logging.getLogger(__name__)

#: Metrics by job: key in the status, help text.
BY_JOB = {column.name: column.about.capitalize() for column in JOB_COLUMNS if column.metric}
#: Metrics by owner: field of `Usage`, help text.
BY_OWNER = {
    "core_seconds": "Core-seconds used",
    "loss_reduction": "Normalized loss reduction of jobs that ended",
}
#: Metrics of owners with a limit of memory: key, help text.
OF_MEMORY = {"memory": "Bytes of results", "max_memory": "Bytes of results above which tasks wait"}
#: States of jobs, see `state_of_job`. Each has a sample, also where no job is in it.
STATES = ("running", "waiting", "idle", "paused", "stopping")
#: Metrics by label with a limit: key, help text.
BY_LABEL = {
    "most": "Tasks that may run at once",
    "running": "Tasks that run",
    "waiting": "Tasks that wait",
}
#: Names of all metrics, without the prefix ``dask_slaq_``, as they are scraped.
FAMILIES = (
    *("jobs", "holding", "failed", "owner_deserved_threads", "owner_got_threads"),
    *("jobs_in_state", "worker_factor", "notices_dropped_total"),
    *(f"owner_{key}_bytes" for key in OF_MEMORY),
    *(f"job_{key}" for key in BY_JOB),
    *(f"label_{key}" for key in BY_LABEL),
    *(f"owner_{key}_total" for key in (*BY_OWNER, "finished_jobs")),
)


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
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
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
            try:
                plugin = registered_plugin(self.server)
                found = []
                if plugin is not None:
                    found = plugin.shown.get("metrics", partial(self._families, plugin))
            except Exception:  # it would take all other metrics along
                logger.exception("the metrics of jobs could not be collected")
                found = []
            yield from found

        def _families(self, plugin: RunningPlugin) -> list[Any]:
            return list(self._each_family(plugin))

        def _each_family(self, plugin: RunningPlugin) -> Iterator[Any]:
            from dask_slaq.scheduler.views.status import owners_of_jobs, status_of_jobs

            jobs = plugin.jobs
            yield self._gauge("jobs", "Running jobs", len(jobs.reports))
            yield self._gauge("holding", "Whether tasks are held", plugin.pools.tracker.holding)
            yield self._gauge("failed", "Whether plain Dask schedules", plugin.failed is not None)
            status = {name: job for name, job in status_of_jobs(jobs).items() if job["reports"]}
            states = Counter(dict.fromkeys(STATES, 0))
            states.update(job["state"] for job in status.values())
            values: dict[Any, float] = {(state,): n for state, n in states.items()}
            text = "Running jobs by what they do"
            yield self._series(GaugeMetricFamily, "jobs_in_state", text, ("state",), values)
            for key, text in BY_JOB.items():
                values = {(name, job["owner"]): job[key] for name, job in status.items()}
                yield self._series(GaugeMetricFamily, f"job_{key}", text, ("job", "owner"), values)
            owners = {o: s for o, s in owners_of_jobs(jobs).items() if s["jobs"] or o in jobs.usage}
            counters = jobs.accounts.counters()
            if counters is not None:  # unknown, they would seem to begin at 0 again
                for key, text in BY_OWNER.items():
                    used = {(owner,): getattr(usage, key) for owner, usage in counters.items()}
                    yield self._series(CounterMetricFamily, f"owner_{key}", text, ("owner",), used)
                ended = {
                    (owner, outcome): getattr(usage, outcome)
                    for owner, usage in counters.items()
                    for outcome in OUTCOMES
                }
                name, text = "owner_finished_jobs", "Jobs that ended"
                yield self._series(CounterMetricFamily, name, text, ("owner", "outcome"), ended)
            for key in ("deserved", "got"):
                known = {(o,): s[key] for o, s in owners.items() if s[key] is not None}
                name, text = f"owner_{key}_threads", f"Threads {key}"
                yield self._series(GaugeMetricFamily, name, text, ("owner",), known)
            for key, text in OF_MEMORY.items():
                known = {(o,): s[key] for o, s in owners.items() if s[key] is not None}
                name = f"owner_{key}_bytes"
                yield self._series(GaugeMetricFamily, name, text, ("owner",), known)
            limits = plugin.pools.limits.as_dict()
            for key, text in BY_LABEL.items():
                values = {(label,): limit[key] for label, limit in limits.items()}
                name, text = f"label_{key}", f"{text}, by label with a limit"
                yield self._series(GaugeMetricFamily, name, text, ("label",), values)
            name, text = "notices_dropped", "Notices dropped because too many waited"
            notices = plugin.notices
            dropped: dict[Any, float] = {(): 0 if notices is None else notices.dropped}
            yield self._series(CounterMetricFamily, name, text, (), dropped)
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

    _collector = SlaqMetrics(scheduler)
    prometheus_client.REGISTRY.register(_collector)
