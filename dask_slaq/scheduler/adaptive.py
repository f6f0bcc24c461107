"""Adaptive clusters: what Dask asks the plugin when workers are to come or go; see `Scaling`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.current import registered_plugin
from dask_slaq.scheduler.hooks import replace

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.pools import Pool


def add_scaling(scheduler: Scheduler) -> None:
    """Limit what `Scheduler.adaptive_target` asks for. Repeated calls install it once."""

    def around(plain: Callable[..., int]) -> Callable[..., int]:
        def limited(target_duration: Any = None) -> int:
            target = plain(target_duration)
            plugin = registered_plugin(scheduler)
            return target if plugin is None else plugin.scaling.limit(target)

        return limited

    limited = replace(scheduler.adaptive_target, around)
    scheduler.adaptive_target = limited  # type: ignore[method-assign]
    scheduler.handlers["adaptive_target"] = limited  # what `Adaptive` calls


class Progress:
    """Which jobs have computed or reported in the last `keep` seconds.

    `reports` has the number of reports of each job, and `pools` its tasks.
    """

    def __init__(self, pools: Mapping[str, Pool], reports: Mapping[str, int], keep: float) -> None:
        self._pools, self._reports, self._keep = pools, reports, keep
        self._seen: dict[str, tuple[Any, float]] = {}  # by job: its progress, and since when

    def busy(self) -> set[str]:
        """Note which jobs have made progress since the last call, and return those of late."""
        now, seen = monotonic(), {}
        for name, reports in self._reports.items():
            pool = self._pools[name]
            progress = (reports, len(pool.tasks), len(pool.unfinished))
            before = self._seen.get(name)
            same = before is not None and before[0] == progress and not pool.has_thread
            seen[name] = before if before is not None and same else (progress, now)
        self._seen = seen
        now = monotonic()
        return {n for n, (_, since) in self._seen.items() if now - since < self._keep}
