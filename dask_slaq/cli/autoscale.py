"""Output of ``dask slaq simulate --autoscale``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import click

from dask_slaq.cli.progress import bars
from dask_slaq.cli.tables import MANY, tell
from dask_slaq.cli.text import aligned
from dask_slaq.core.errors import SlaqError
from dask_slaq.core.scaling_terms import check_scaling
from dask_slaq.simulation.autoscale import autoscale
from dask_slaq.simulation.recorded import LogError, part_of
from dask_slaq.simulation.settings import Settings
from dask_slaq.simulation.workload import CurveError

__all__ = ["show_autoscale"]

#: Heading, key and number of decimals of each column.
COLUMNS = (
    ("worker-hours", "worker_hours", 2),
    ("cost", "cost", 2),
    ("t90/s", "t90_mean_s", 1),
    ("end/s", "completion_mean_s", 1),
    ("starts", "starts", 0),
)
_LEGEND = (
    "Per list: hours of all workers, paid from the request on, and starts of workers. Means over "
    "all jobs:\nseconds from arrival to 90 % of the loss reduction and to the end."
)


def show_autoscale(
    settings: Mapping[str, Any],
    terms: Mapping[str, float],
    *,
    policy: str,
    curves: Sequence[str],
    log: str | None,
    threads: int,
    processes: int | None,
    json_file: str | None,
) -> None:
    """Simulate each way of scaling, print a table, and write the figures to `json_file` if given.

    `settings` are those of `simulation.settings.Settings`, and `terms` of `check_scaling`.
    """
    try:
        chosen = Settings(**settings)
        found_terms = check_scaling(terms)
        jobs = 7 * chosen.jobs * chosen.seeds  # of at most 7 ways
        if processes is None:
            processes = (os.cpu_count() or 1) if jobs >= MANY else 1
        with bars() as progress:
            found = autoscale(
                chosen,
                found_terms,
                threads=threads,
                policy=policy,
                curves=curves or None,
                log=log,
                progress=part_of(progress, "Simulating", jobs),
                processes=processes,
            )
    except (SlaqError, CurveError, LogError) as error:
        raise click.ClickException(str(error)) from None
    tell(found, _table(found), json_file)


def _table(found: Mapping[str, Any]) -> str:
    cells = [["workers", *(heading for heading, _, _ in COLUMNS)]]
    for name, figures in found["ways"].items():
        values = [(figures[key], digits) for _, key, digits in COLUMNS]
        cells.append([name, *("-" if v is None else f"{v:.{d}f}" for v, d in values)])
    s = found["settings"]
    title = (
        f"{s['jobs']} jobs, at most {s['maximum']} workers of {s['threads']} threads that compute "
        f"after {s['start_up']:g} s, policy {s['policy']}"
    )
    return "\n".join([title, "", *aligned(cells), "", _LEGEND, *found["notes"]])
