"""Models that are Dask computations: jobs in the block of a search."""

import asyncio
import time

import numpy as np
import pytest
from distributed import Client, Event, get_client
from distributed.utils_test import captured_logger, inc
from driving import PATIENCE, alerts_of, on_virtual, tasks_of, work

import dask_slaq as slaq
from dask_slaq.client import request

STEPS = 10


def loss_of(final: float, step: int) -> float:
    return final + 0.7**step


async def train(client: Client, final: float, ends: list[float], reported=None) -> None:
    """A model whose every step is a graph of eight tasks."""
    async with slaq.job(f"model-{final:g}", client=client) as job:
        for step in range(STEPS):
            names = [f"{final}-{step}-{part}" for part in range(8)]
            await client.gather([client.submit(work, 0.25, key=name) for name in names])
            if reported is not None:
                reported.append(final)
            job.report(loss_of(final, step))
    ends.append(final)


@on_virtual([2] * 4)
async def test_the_best_models_of_a_search_are_ready_first(client, cluster, plugin):
    ends, reported = [], []
    async with slaq.search("grid", steps=STEPS, client=client):
        finals = [3.0, 1.0, 4.0, 0.0, 2.0, 5.0]  # in the order of their submission
        await asyncio.gather(*(train(client, each, ends, reported) for each in finals))
    assert ends[:3] == [0.0, 1.0, 2.0]
    first = reported.index(0.0, max(i for i, r in enumerate(reported) if r == 0.0))
    assert first < 0.7 * len(reported)
    # All others had begun by then: none is left for later unseen.
    assert set(reported[:first]) == set(ends)


@on_virtual([2] * 4)
async def test_other_work_does_not_pay_for_it(client, cluster, plugin):
    begin, ends, ready = time.monotonic(), [], {}

    async def other():
        async with slaq.job("other", client=client) as job:
            for step in range(STEPS):
                names = [f"other-{step}-{part}" for part in range(8)]
                with tasks_of("other"):
                    some = [client.submit(work, 0.25, key=name) for name in names]
                await client.gather(some)
                job.report(loss_of(9.0, step))
        ready["other"] = time.monotonic() - begin

    task = asyncio.create_task(other())
    async with slaq.search("grid", steps=STEPS, client=client):
        await asyncio.gather(*(train(client, each, ends) for each in range(5)))
    ready["all"] = time.monotonic() - begin
    await task
    assert ready["other"] <= 1.1 * ready["all"]  # under plain Dask all six end together


@on_virtual([1] * 4)
async def test_a_search_whose_models_are_done_is_not_silent(client, cluster, plugin):
    seen = await alerts_of(client, cluster.scheduler)
    async with slaq.search("grid", steps=STEPS, client=client):
        await train(client, 1.0, [])
        await asyncio.sleep(100)
        assert (await slaq.explain("grid", client=client))["reason"] == "search: 1 done"
    assert not [alert for alert in seen if alert["event"] == "silent"]


def fit(params: dict[str, float], data, go: str = "", steps: int = STEPS) -> float:
    for step in range(steps):
        if go and step == 2:
            Event(go, client=get_client()).wait()
        total = get_client().submit(inc, step, pure=False).result()
        slaq.report(loss_of(params["lr"], total))
    return params["lr"]


@pytest.fixture
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(epoch="50ms"))


def test_they_are_rows_of_its_table(client, plugin):
    search = slaq.search("grid", steps=STEPS, owner="ann")
    with captured_logger("dask_slaq") as log, search:
        futures = [
            slaq.submit(fit, {"lr": lr}, np.ones(3), name=f"lr-{lr}", go="two")
            for lr in (0.2, 0.1, 0.3)
        ]
        while len(search.trials()) < 3 or min(t["iteration"] for t in search.trials()) < 2:
            time.sleep(0.02)
        assert {t["state"] for t in search.trials()} == {"training"}
        assert "3 train" in slaq.explain("grid")["text"]
        assert slaq.status(client)["jobs"]["grid"]["iteration"] == 6
        Event("two", client=client).set()
        assert [future.result(PATIENCE) for future in futures] == [0.2, 0.1, 0.3]
    found = search.results()
    # Others who look see the parameters, too.
    known = client.sync(request, client, "slaq_models", search="grid")["rows"]
    assert sorted(row["params"]["lr"] for row in known) == [0.1, 0.2, 0.3]
    shown = found[["params_lr", "key", "iteration", "state"]].values.tolist()
    assert shown == [[lr, f"lr-{lr}", STEPS, "done"] for lr in (0.1, 0.2, 0.3)]
    params, loss, future = search.best()
    assert (params, future.result()) == ({"lr": 0.1, "go": "two"}, 0.1)
    assert loss == pytest.approx(loss_of(0.1, STEPS))
    assert search.curves().shape == (3, STEPS)
    assert "no task was submitted" not in log.getvalue()


def test_scores_are_higher_for_better_models(client, plugin):
    with slaq.search("grid", steps=STEPS, maximize=True) as search:
        futures = [slaq.submit(fit, {"lr": lr}, None, name=f"lr-{lr}") for lr in (1, 2, 3)]
        assert [future.result(PATIENCE) for future in futures] == [1, 2, 3]
    assert search.best_params["lr"] == 3
    assert search.results()["loss"].iloc[0] == pytest.approx(loss_of(3, STEPS))


@pytest.mark.slow
def test_models_without_hope_are_pruned(client, plugin):
    with slaq.search("grid", steps=200, prune=True) as search:
        futures = [
            slaq.submit(fit, {"lr": lr}, None, name=f"lr-{lr}", steps=200, go="on" * (lr > 0))
            for lr in (0, 5, 9)
        ]
        assert futures[0].result(PATIENCE) == 0  # what is ready judges the others
        Event("on", client=client).set()
        for future in futures[1:]:
            with pytest.raises(Exception, match="was stopped"):
                future.result(PATIENCE)
    states = {row["params"]["lr"]: row["state"] for row in search.trials()}
    assert states == {0: "done", 5: "pruned", 9: "pruned"}


def test_what_is_asked_of_a_search_is_asked_of_its_models(client, plugin):
    with slaq.search("grid") as search:
        futures = [slaq.submit(fit, {"lr": k}, None, name=f"m{k}", steps=10**6) for k in range(2)]
        while min([future.job.iteration for future in futures]) < 2:
            time.sleep(0.02)
        search.pause()
        assert {j["state"] for j in slaq.status(client)["jobs"].values()} == {"paused"}
        search.unpause()
        search.stop()
        for future in futures:
            with pytest.raises(Exception, match="was stopped"):
                future.result(PATIENCE)
    assert {row["state"] for row in search.trials()} == {"stopped"}


def test_a_search_ends_with_its_last_model(client, plugin):
    with slaq.search("grid") as search:
        futures = [slaq.submit(fit, {"lr": k}, None, name=f"m{k}", go="end") for k in range(2)]
    assert "grid" in slaq.status(client)["jobs"]
    Event("end", client=client).set()
    assert [future.result(PATIENCE) for future in futures] == [0, 1]
    while "grid" in slaq.status(client)["jobs"]:
        time.sleep(0.02)
    assert {row["state"] for row in search.trials()} == {"done"}


def test_a_model_that_fails_is_a_row(client, plugin):
    def fail():
        slaq.report(1.0)
        raise ZeroDivisionError

    with slaq.search("grid") as search:
        future = slaq.submit(fail, name="bad")
        assert isinstance(future.exception(PATIENCE), ZeroDivisionError)
    assert [row["state"] for row in search.trials()] == ["failed"]


def fit_logistic(client, X, y, C):
    from dask_ml.linear_model import LogisticRegression

    model = LogisticRegression(C=C, solver="gradient_descent", max_iter=8).fit(X, y)
    assert model.coef_.shape == (5,)


def boost(client, X, y, depth):
    import xgboost.dask

    settings = {"objective": "binary:logistic", "max_depth": depth, "nthread": 1}
    data = xgboost.dask.DaskDMatrix(client, X, y)
    found = xgboost.dask.train(client, settings, data, num_boost_round=6)
    assert found["booster"].num_boosted_rounds() == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("train", "library", "values", "steps"),
    [
        (fit_logistic, "dask_ml", (0.01, 1.0, 100.0), range(2, 10)),
        (boost, "xgboost.dask", (1, 2, 3), [6]),
    ],
)
def test_models_of_libraries_are_ranked(client, plugin, train, library, values, steps):
    pytest.importorskip(library)
    import dask.array as da

    rng = np.random.default_rng(0)
    X = da.from_array(rng.normal(size=(400, 5)), chunks=(100, 5)).persist()
    y = (X[:, 0] > 0).astype(int).persist()

    def train_one(value):
        train(client, X, y, value)

    with slaq.search("grid") as search:
        futures = [slaq.submit(train_one, value, name=f"model-{value}") for value in values]
        for future in futures:
            future.result(PATIENCE)
    rows = {row["params"]["value"]: row for row in search.trials()}
    assert rows.keys() == set(values)
    assert all(row["iteration"] in steps and row["state"] == "done" for row in rows.values())
    assert search.best_params == {"value": min(rows, key=lambda value: rows[value]["loss"])}
