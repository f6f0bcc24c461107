"""Prometheus metrics on the scheduler's ``/metrics``; `families` has them."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from distributed import Scheduler

from dask_slaq.core.jobs.columns import JOB_COLUMNS
from dask_slaq.core.owners.usage import OTHERS, OUTCOMES
from dask_slaq.core.text import printable
from dask_slaq.scheduler.current import RunningPlugin, registered_plugin
from dask_slaq.scheduler.hooks import guarded_as
from dask_slaq.scheduler.views.status import owners_of_jobs, status_of_jobs

#: Labels whose values clients make up, and maximum number of these in a family.
MADE_UP, MOST_VALUES = ("job", "owner"), 100
#: Metrics by job: key in the status, help text.
BY_JOB = {column.name: column.about.capitalize() for column in JOB_COLUMNS if column.metric}
#: Metrics by owner: field of `Usage`, help text.
BY_OWNER = {
    "core_seconds": "Core-seconds used",
    "loss_reduction": "Normalized loss reduction of jobs that ended",
}
#: States of jobs, see `state_of_job`. Each has a sample, also where no job is in it.
STATES = ("running", "waiting", "idle", "paused", "stopping")
#: Names of all metrics, without the prefix ``dask_slaq_``, as they are scraped.
FAMILIES = (
    *("jobs", "holding", "failed", "owner_deserved_threads", "owner_got_threads"),
    "jobs_in_state",
    *(f"job_{key}" for key in BY_JOB),
    *(f"owner_{key}_total" for key in (*BY_OWNER, "finished_jobs")),
)


def families(plugin: RunningPlugin, build_name: Callable[[str], str]) -> Iterator[Any]:
    """Yield all families of a scheduler; `build_name` puts the prefix before a name."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    jobs = plugin.jobs
    own = jobs.accounts.counted

    def series(
        kind: Any, name: str, text: str, labels: Sequence[str], values: dict[Any, float]
    ) -> Any:
        family = kind(build_name(name), text, labels=labels)
        if labels[0] in MADE_UP:
            first = dict.fromkeys(labelled[0] for labelled in values)
            mine = own if labels[0] == "owner" else set(islice(first, MOST_VALUES))
            known, values = values, {}
            for labelled, value in known.items():
                if labelled[0] not in mine:
                    parts = zip(labels, labelled, strict=True)
                    labelled = tuple(OTHERS if label in MADE_UP else part for label, part in parts)
                values[labelled] = values.get(labelled, 0.0) + value
        for labelled, value in values.items():
            family.add_metric(tuple(map(printable, labelled)), value)
        return family

    for name, text, value in (
        ("jobs", "Running jobs", len(jobs.reports)),
        ("holding", "Whether tasks are held", plugin.pools.records.holding),
        ("failed", "Whether plain Dask schedules", plugin.failed is not None),
    ):
        yield GaugeMetricFamily(build_name(name), text, value=float(value))
    status = {name: job for name, job in status_of_jobs(jobs).items() if job["reports"]}
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(job["state"] for job in status.values())
    values: dict[Any, float] = {(state,): n for state, n in states.items()}
    text = "Running jobs by what they do"
    yield series(GaugeMetricFamily, "jobs_in_state", text, ("state",), values)
    for key, text in BY_JOB.items():
        values = {(name, job["owner"]): job[key] for name, job in status.items()}
        yield series(GaugeMetricFamily, f"job_{key}", text, ("job", "owner"), values)
    totals = jobs.accounts.totals
    owners = {o: s for o, s in owners_of_jobs(jobs).items() if s["jobs"] or o in totals}
    counters = jobs.accounts.counters()
    if counters is not None:  # unknown, they would seem to begin at 0 again
        # Those that used most, for good: the counters of the others would fall.
        most = sorted(counters, key=lambda owner: -counters[owner].core_seconds)
        new = [o for o in dict.fromkeys([*most, *owners]) if o not in own and o != OTHERS]
        own.update(new[: MOST_VALUES - len(own)])
        for key, text in BY_OWNER.items():
            used = {(owner,): getattr(usage, key) for owner, usage in counters.items()}
            yield series(CounterMetricFamily, f"owner_{key}", text, ("owner",), used)
        ended = {
            (owner, outcome): getattr(usage, outcome)
            for owner, usage in counters.items()
            for outcome in OUTCOMES
        }
        name, text = "owner_finished_jobs", "Jobs that ended"
        yield series(CounterMetricFamily, name, text, ("owner", "outcome"), ended)
    for key in ("deserved", "got"):
        known = {(o,): s[key] for o, s in owners.items() if s[key] is not None}
        name, text = f"owner_{key}_threads", f"Threads {key}"
        yield series(GaugeMetricFamily, name, text, ("owner",), known)


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
            return plugin.shown.get("metrics", lambda: list(families(plugin, self.build_name)))

        def fall_back(self, error: BaseException) -> None:
            logger.error("the metrics of jobs could not be collected", exc_info=error)

    _collector = SlaqMetrics(scheduler)
    prometheus_client.REGISTRY.register(_collector)
