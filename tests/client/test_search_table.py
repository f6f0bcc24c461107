"""The table of a search: parameters, times, curves and errors of its models, best first."""

import functools
import math
import time

import dask
import numpy as np
import pytest
from distributed import Event, wait
from driving import inside, small_cluster, until, with_plugin

import dask_slaq as slaq
from dask_slaq.client import Trial
from dask_slaq.core.errors import InvalidSetting, SlaqError

STEPS = 12


def train(params, epochs=STEPS, data=None):
    for k in range(epochs):
        time.sleep(0.002)
        slaq.report(params["offset"] + 1 / (k + 1))
    if params.get("fails"):
        raise ValueError("no luck with this model")
    return params["offset"]


GRID = [{"offset": offset, "act": "relu", "layers": (8, 8)} for offset in (3, 0.5, 2, 1)]


@with_plugin([1, 1])
async def test_map_keeps_parameters_of_models_that_have_not_begun(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = search.map(train, GRID, epochs=STEPS, pure=False)
        await until(lambda: len(s.tasks) == len(GRID))
        rows = await search.trials()
        assert {row["key"]: row["params"] for row in rows} == {
            future.key: params for future, params in zip(futures, GRID, strict=True)
        }
        await wait(futures)
    best = await search.best()
    assert best.params == GRID[1] == await search.best_params
    assert best.loss == pytest.approx(0.5 + 1 / STEPS)
    assert await best.future == 0.5
    assert repr(search) == "<Search 'grid': 4 of 4 done, best 0.5833>"  # by the last answer
    assert "search <b>grid</b>: 4 done" in search._repr_html_()


@pytest.mark.parametrize("way", ["map", "submit", "partial", "delayed"])
@with_plugin([1])
async def test_parameters_are_the_arguments_of_the_call_however_it_is_made(c, s, plugin, a, way):
    data = c.submit(np.zeros, 3)
    async with slaq.search("grid", client=c) as search:
        if way == "map":
            futures = c.map(train, GRID, epochs=4, pure=False)
        elif way == "submit":
            futures = [c.submit(train, params, 4, data) for params in GRID]
        elif way == "partial":
            futures = c.map(functools.partial(train, epochs=4), GRID)
        else:
            futures = c.compute([dask.delayed(train)(params, epochs=4) for params in GRID])
        await c.gather(futures)
        rows = await search.trials()
    found = sorted((row["params"] for row in rows), key=lambda params: params["offset"])
    wanted = sorted(GRID, key=lambda params: params["offset"])
    assert found == [{**params, "epochs": 4} for params in wanted]


@with_plugin([1, 1])
async def test_rows_have_times_curves_and_errors_and_no_stale_forecasts(c, s, plugin, a, b):
    before = time.time()
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = search.map(train, [*GRID, {"offset": 4, "fails": True}])
        await wait(futures)
    rows = await search.trials()
    assert len(rows) == 5
    for row in rows:
        assert row.keys() == Trial.__annotations__.keys()
        assert before - 1 <= row["began"] <= row["ended"] <= time.time() + 1
        assert math.isnan(row["predicted"]) and math.isnan(row["low"])
        wanted = [(k + 1, row["params"]["offset"] + 1 / (k + 1)) for k in range(STEPS)]
        assert row["curve"] == wanted
    (failed,) = [row for row in rows if row["state"] == "failed"]
    assert "no luck" in failed["error"]
    table = await search.results()
    assert list(table["params_offset"]) == [0.5, 1, 2, 3, 4]
    assert list(table["state"]) == ["done"] * 4 + ["failed"]
    assert table["ended"].dt.tz is not None
    curves = await search.curves()
    assert curves.shape == (5, STEPS) and not np.isnan(curves).any()
    one = curves.sel(model=int(curves.params_offset.values.argmin()))
    assert float(one.sel(step=4)) == 0.75 and str(one.state.values) == "done"


@with_plugin([1])
async def test_a_model_that_is_submitted_again_is_one_row(c, s, plugin, a):
    async with slaq.search("grid", client=c) as search:
        hold = c.submit(train, GRID[1], 2)
        for _ in range(3):
            future = c.submit(train, GRID[0], 2)
            await future
            del future
            await until(lambda: len(s.tasks) == 1)
        rows = await search.trials()
        assert sorted(row["params"]["offset"] for row in rows) == [0.5, 3]
        await hold
        best = await search.best()
        assert best.future.key == hold.key
        del best, hold
        await until(lambda: not s.tasks)
        assert (await search.best()).future is None


@with_plugin([1])
async def test_best_params_are_what_map_was_given(c, s, plugin, a):
    grid = [{"offset": 1, "model": {"layers": [8, 8]}, "rate": np.float32(0.5)}]
    async with slaq.search("grid", client=c) as search:
        await c.gather(search.map(train, grid))
    assert await search.best_params == grid[0]
    (row,) = await search.trials()
    assert row["params"] == {"offset": 1, "model.layers": (8, 8), "rate": 0.5}


@with_plugin([1])
async def test_best_needs_a_model_that_is_done(c, s, plugin, a):
    search = slaq.search("grid", client=c)
    with pytest.raises(SlaqError, match="has not begun"):
        search.best()
    with pytest.raises(SlaqError, match="outside of the block"):
        search.map(train, GRID)
    async with search:
        assert search.map(train, []) == []
        with pytest.raises(SlaqError, match="no model of search 'grid' is done"):
            await search.best_params


@with_plugin([1])
async def test_settings_change_while_it_runs(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=5) as search:
        await search.set(prune=True, steps=40, max_waiting=3, goal="all", weight=2)
        settings = inside(plugin).trials("grid").settings
        assert (settings.prune, settings.steps, settings.max_waiting, settings.goal) == (
            *(True, 40, 3),
            "all",
        )
        assert inside(plugin).job("grid").weight == 2
        with pytest.raises(InvalidSetting, match="goal must be one of"):
            await search.set(weight=3, goal="worst")
        with pytest.raises(ValueError, match="changes nothing: None"):
            await search.set(prune=None)
        assert inside(plugin).job("grid").weight == 2  # nothing was changed
        await search.set(prune=False)  # a model that is pruned makes fewer steps
        futures = c.map(train, GRID, epochs=6)
        await wait(futures)
        await until(lambda: inside(plugin).job("grid").max_iter == 160)
        async with slaq.job("a", client=c) as job:
            request = slaq.client.request(
                c, "slaq_steer", job=job.name, what="set", by="", prune=True
            )
            with pytest.raises(InvalidSetting, match="is not a search"):
                await request


def test_in_a_plain_program_and_in_notebooks(local_client, capsys):
    client = local_client
    client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    with slaq.search("grid", steps=STEPS) as search:
        futures = search.map(train, [*GRID, {"offset": 4, "fails": True}])
        wait(futures)
    params, loss, future = search.best()
    assert params == GRID[1] and loss < 1 and future.result() == 0.5
    assert search.best_params == GRID[1]
    widget = slaq.progress("grid", client, notebook=True)
    assert "search <b>grid</b>: 4 done, 1 failed" in widget.value
    slaq.progress("grid", client, notebook=False, interval=0.05)
    assert "grid: 4 done, 1 failed" in capsys.readouterr().out
    assert repr(search) == "<Search 'grid': 4 of 5 done, best 0.5833, 1 failed>"
    html = search._repr_html_()
    assert "4 done, 1 failed" in html and "<td>relu</td>" in html
    with slaq.job("a<b") as job:
        job.report(1.0)
        assert repr(job) == "<Job 'a<b': 1 iterations>"
        assert "a&lt;b" in job._repr_html_() and "grid" not in job._repr_html_()
        now = slaq.status()
        assert now["capacity"] == 2 and dict(now)["policy"] == "first-to-target"
        first, heading, row = repr(now).splitlines()
        assert first == "policy first-to-target, 2 threads"
        assert heading.startswith("job") and row.startswith("a<b")
    assert job._repr_html_() == "&lt;Job &#x27;a&lt;b&#x27;: ended after 1 report, loss 1&gt;"


class Wrong(Exception):
    pass


def test_what_is_printed_of_a_job_that_has_ended(local_client):
    client = local_client
    client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    job = slaq.job("mine")
    assert repr(job) == "<Job 'mine': not begun>"
    with job:
        client.submit(sum, [1, 2]).result()
    assert repr(job) == "<Job 'mine': ended after 0 reports>"
    with pytest.raises(Wrong), job:
        for loss in (0.5, 0.25):
            job.report(loss)
        raise Wrong
    assert repr(job) == "<Job 'mine': failed after 2 reports, loss 0.25>"
    with job:
        job.stop()
        with pytest.raises(slaq.StopTraining):
            while True:
                job.report(0.5)
    assert repr(job).startswith("<Job 'mine': stopped after")


@with_plugin([1])
async def test_what_is_printed_of_a_search_and_of_the_plugin(c, s, plugin, a):
    assert repr(plugin) == "<SlaqPlugin fair, 0 jobs>"
    search = slaq.search("grid", client=c, steps=STEPS)
    assert repr(search) == "<Search 'grid': not begun>"
    async with search:
        assert repr(search) == "<Search 'grid': open>"
        assert repr(plugin) == "<SlaqPlugin fair, 1 job>"
        blocked = c.submit(Event("go").wait)
        futures = search.map(train, GRID[:2])
        await until(lambda: len(s.tasks) == 3)
        await search.trials()
        assert repr(search) == "<Search 'grid': 0 of 3 done, 3 pending>"
        await Event("go").set()
        await wait([*futures, blocked])
    async with (again := slaq.search("again", client=c)):
        pass
    assert repr(again) == "<Search 'again': left, 'await search.trials()' tells more>"
    assert repr(slaq.SlaqPlugin(policy="max-total")) == "<SlaqPlugin max-total, 0 jobs>"


def test_a_search_is_printed_after_its_cluster_has_gone():
    with small_cluster() as client:
        client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
        with slaq.search("grid", client=client, steps=STEPS) as search:
            wait(search.map(train, GRID[:2]))
        with slaq.search("empty", client=client) as empty:
            pass
    assert repr(search) == "<Search 'grid': 2 of 2 done, best 0.5833>"
    assert repr(empty) == "<Search 'empty': left, no model is known>"
