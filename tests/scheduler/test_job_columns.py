"""What a job shows follows from one table, and the names that others use stay."""

import re

import pytest
from driving import inside, until, with_plugin

import dask_slaq as slaq
from dask_slaq.cli.status_tables import jobs_table
from dask_slaq.core.jobs.columns import JOB_COLUMNS
from dask_slaq.scheduler.views.metrics import FAMILIES

#: Keys that programs read; metrics that dashboards query; variables of files that people kept.
STATUS = {
    *("age", "iteration", "max_iter", "loss", "normalized_loss", "predicted", "share", "index"),
    *("workers", "running", "ready", "attained", "reports", "weight", "min_share", "max_share"),
    *(
        "target",
        "eta",
        "max_slowdown",
        "ends",
        "owner",
        "state",
        "kind",
        "like_runs",
        "why",
        "reason",
    ),
    *("position", "lent", "borrowed", "owed"),
}
METRICS = {"normalized_loss", "share", "running", "ready", "iteration", "lent", "borrowed", "owed"}
HISTORY = {"iteration", "loss", "normalized_loss", "predicted", "share", "running", "core_seconds"}


def names(condition):
    return [column.name for column in JOB_COLUMNS if condition(column)]


@with_plugin([1], epoch="1h")
async def test_everything_that_shows_jobs_follows_the_table(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        await until(lambda: inside(plugin).job("a").iteration == 1)
        plugin.run_once()
        status, history = await slaq.status(c), await slaq.history(c)
    assert status["jobs"]["a"].keys() == STATUS == set(names(lambda column: column.status))
    assert set(history.data_vars) == HISTORY == set(names(lambda column: column.kept))
    for column in JOB_COLUMNS:
        if column.kept:
            assert history[column.name].attrs == {"long_name": column.about, "units": column.unit}
    shown = {name.removeprefix("job_") for name in FAMILIES if name.startswith("job_")}
    assert shown == METRICS == set(names(lambda column: column.metric))
    headings = [column.heading or column.name for column in JOB_COLUMNS if column.terminal]
    assert re.split(" {2,}", jobs_table(status).splitlines()[2].strip()) == headings
    titles = [column.title or column.name for column in JOB_COLUMNS if column.notebook]
    assert re.findall("<th [^>]*>(.*?)</th>", status._repr_html_()) == titles


@with_plugin([1])
async def test_the_board_follows_the_table(c, s, plugin, a):
    pytest.importorskip("bokeh", reason="bokeh is not installed")
    from dask_slaq.scheduler.board.pages import JobsPlot

    async with slaq.job("a", client=c):
        table = JobsPlot(s)
        table.update()
    shown = names(lambda column: column.board)
    assert [column.field for column in table.root.columns] == ["color", *shown]
    assert set(shown) <= table.sources[0].data.keys()
    assert table.sources[0].data["job"] == ["a"]
