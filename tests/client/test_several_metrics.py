"""Several metrics of one model of a search."""

import math
import time

import pytest
from distributed import Event
from driving import inside, let_end, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, NonFiniteLoss


@with_plugin([1])
async def test_the_first_metric_ranks_and_all_are_kept(c, s, plugin, a):
    def train(offset):
        for k in range(6):
            slaq.report({"loss": offset + 1 / (k + 1), "auc": 0.1 * k, "odd": math.nan}, step=2 * k)

    async with slaq.search("grid", client=c) as search:
        await c.gather(search.map(train, [1, 0]))
    rows = await search.trials()
    assert [row["curve"][-1] for row in rows] == [(11, 1 + 1 / 6), (11, 1 / 6)]
    for row in rows:
        assert row["metrics"] == {"auc": 0.5}
        assert row["curves"] == {"auc": [(2 * k + 1, 0.1 * k) for k in range(6)]}
    table = await search.results()
    assert list(table["metrics_auc"]) == [0.5, 0.5] and list(table["params_offset"]) == [0, 1]
    auc = await search.curves("auc")
    assert auc.name == "auc" and auc.shape == (2, 6)
    assert (await search.curves("nothing")).shape == (2, 0)


@with_plugin([1])
async def test_a_job_takes_the_first_metric(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        job.report({"loss": 2.0, "auc": 0.5})
        slaq.report({"loss": 1.0, "auc": 0.5})
        with pytest.raises(InvalidSetting, match="metrics of which the first"):
            job.report({})
        with pytest.raises(NonFiniteLoss):
            job.report({"loss": "much"})
        job.report({"loss": 1.0, "auc": None})  # what is not the loss ends no training
        await c.submit(int)
    assert job.iteration == 3


LOGS = [{"loss": 0.5}, {"eval_loss": 9.0}, {"epoch": 1, "loss": 0.25}, {"train_runtime": 600.0}]


@pytest.mark.parametrize(
    ("metric", "curve"), [(None, [0.5, 0.25]), ("eval_loss", [9.0]), ("auc", [])]
)
@with_plugin([1])
async def test_only_the_metric_that_is_the_loss_counts(c, s, plugin, a, metric, curve, caplog):
    def train():
        for log in LOGS:
            slaq.report(log)

    async with slaq.search("grid", metric=metric, client=c) as search:
        await c.submit(train)
    rows = await search.trials()
    assert [[loss for _, loss in row["curve"]] for row in rows if row["curve"]] == [curve] * (
        len(curve) > 0
    )
    async with slaq.job("a", metric=metric, client=c) as job:
        for log in LOGS:
            job.report(log)
        await c.submit(int)
    assert job.iteration == len(curve)
    assert "was dropped: that is the loss" in caplog.text
    assert ("no report has 'auc'; they have: 'loss', 'eval_loss'" in caplog.text) == (not curve)
    for wrong in ("", 3, "x" * 101):
        with pytest.raises(InvalidSetting, match="metric"):
            slaq.search("grid", metric=wrong)


@with_plugin([1])
async def test_models_that_are_compared_by_different_metrics_are_told_of_once(
    c, s, plugin, a, caplog
):
    orders = [("loss", "auc"), ("auc", "loss"), ("loss", "auc"), ("auc", "loss")]
    async with slaq.search("grid", client=c):
        await c.gather(c.map(lambda names: slaq.report(dict.fromkeys(names, 0.5)), orders))
    warnings = [r.getMessage() for r in caplog.records if "different losses" in r.getMessage()]
    assert len(warnings) == 1 and "'loss' and 'auc'" in warnings[0]


@with_plugin([1])
async def test_a_loss_that_no_report_has_is_told_while_models_train(c, s, plugin, a):
    def train():
        slaq.report({"loss": 0.5, "accuracy": 0.9})
        Event("go").wait()

    async with slaq.search("grid", metric="typo", client=c) as search:
        future, why = c.submit(train), "no report has 'typo'; they have: 'loss', 'accuracy'"
        await until(lambda: inside(plugin).search("grid").lacks)
        assert [row["error"] for row in await search.trials()] == [why]
        assert why in (await slaq.explain("grid", client=c))["text"]
        await let_end(c, future)


@pytest.mark.parametrize("maximize", [False, True])
@with_plugin([1])
async def test_the_best_may_be_that_with_the_lowest_loss(c, s, plugin, a, maximize):
    def train(losses):
        for loss in losses:
            slaq.report(-loss if maximize else loss)

    async with slaq.search("grid", maximize=maximize, client=c) as search:
        await c.gather(search.map(train, [(3.0, 1.0, 4.0), (3.0, 2.0, 2.5)]))
    assert (await search.best()).params["losses"] == (3.0, 2.0, 2.5)
    lowest = await search.best(by="lowest")
    assert lowest.params["losses"] == (3.0, 1.0, 4.0) and abs(lowest.loss) == 1.0
    assert list((await search.results())["lowest_step"]) == [2, 2]
    with pytest.raises(InvalidSetting, match="by must be"):
        search.best(by="mean")


@with_plugin([1])
async def test_a_verdict_is_not_retried_and_an_error_is(c, s, plugin, a, tmp_path):
    def train(number):
        (tmp_path / f"{number}-{len(list(tmp_path.glob(f'{number}-*')))}").touch()
        if number == 4 and len(list(tmp_path.glob("4-*"))) < 3:
            raise OSError("once more")
        for k in range(30):
            time.sleep(0.005)
            slaq.report(number + 1 / (k + 1))

    async with slaq.search("grid", steps=30, prune=True, client=c) as search:
        futures = search.map(train, range(12), retries=3)
        await c.gather(futures, errors="skip")
    ends = {row["params"]["number"]: row["state"] for row in await search.trials()}
    assert "pruned" in ends.values()
    assert [len(list(tmp_path.glob(f"{k}-*"))) for k in range(12)] == [1, 1, 1, 1, 3, *[1] * 7]
