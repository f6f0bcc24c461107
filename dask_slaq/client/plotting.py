"""Figure of one job: its loss with the forecast, and the threads that it used."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_slaq.client.connection import current_client, request
from dask_slaq.client.queries import history_of
from dask_slaq.core.errors import UnknownJob
from dask_slaq.core.job_history import threads
from dask_slaq.core.settings import shown

if TYPE_CHECKING:
    import xarray
    from distributed import Client

__all__ = ["plot"]

#: Epochs over which threads are averaged.
AVERAGED = 10


def plot(job: str, client: Client | None = None) -> Any:
    """Return a Matplotlib figure of a job that runs or is remembered; see `Job.plot`.

    Raises ImportError without Matplotlib, UnknownJob and NoPlugin.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError("plot() needs Matplotlib: pip install 'dask-slaq[notebook]'") from error
    client = current_client(client)
    return client.sync(_plot, client, job)


async def _plot(client: Client, job: str) -> Any:
    history = await history_of(client)
    if job not in history.job.values:
        raise UnknownJob(f"no job named {shown(job)} is remembered")
    return draw(job, history.sel(job=job), await request(client, "slaq_curve", job=job))


def draw(job: str, history: xarray.Dataset, curve: dict[str, Any] | None) -> Any:
    """Draw the figure of a job from its history, and its predicted curve; see `CurveToCome`."""
    from matplotlib.figure import Figure

    ran = np.flatnonzero(np.isfinite(history.iteration.values))
    # One epoch more before the job, so that its first threads have a beginning.
    part = history.isel(epoch=slice(max(int(ran[0]) - 1, 0), int(ran[-1]) + 1))
    times = part.time.values - float(history.time.values[ran[0]])
    losses = part.loss.values
    used = threads(times, part.core_seconds.values[np.newaxis], AVERAGED)[0]

    # Without pyplot, which would keep every figure and choose a window system.
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    above.plot(times, losses, color="C0", label="reported")
    if curve is not None:
        ahead, end = np.array(curve["seconds"]), float(times[-1])
        near = ahead <= max(end, 10.0)
        last = losses[-1] if math.isfinite(losses[-1]) else curve["loss"][0]
        x, y = [end, *(end + ahead[near])], [last, *np.array(curve["loss"])[near]]
        above.plot(x, y, "--", color="C0", label="predicted")
        if curve["low"] is not None:
            edges = (np.array(curve[edge])[near] for edge in ("low", "high"))
            label = "80 % of the reports to come"
            above.fill_between(end + ahead[near], *edges, color="C0", alpha=0.15, lw=0, label=label)
    above.set(title=job.replace("$", r"\$"), ylabel="loss")
    above.legend(frameon=False)
    below.fill_between(times, used, color="C1", alpha=0.7, lw=0)
    below.set(xlabel="seconds since the job began", ylabel="threads", ylim=(0, None))
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
