"""Goals: a job that is good enough stops or shrinks, and alerts are few and right."""

import asyncio

import pytest
from distributed.utils_test import inc
from driving import (
    alerts_of,
    in_job,
    inside,
    let_end,
    map_in_each,
    report_epochs,
    until,
    wait_for,
    with_plugin,
)

import dask_slaq as slaq


@with_plugin([1, 1], epoch="1h")
async def test_a_job_stops_at_its_target(c, s, plugin, a, b):
    seen = await alerts_of(c, s)
    async with slaq.job("a", client=c, target=0.3, stop=True) as job:
        with pytest.raises(slaq.StopTraining):
            for i in range(20):
                await report_epochs(plugin, job, [1.0 / (1 + i)])
                await asyncio.sleep(0.02)
        assert 3 <= i <= 7
    await until(lambda: len(seen) == 2)
    assert [alert["event"] for alert in seen] == ["reached", "stopped"]
    assert seen[0]["message"].startswith("a: reached its target 0.3 with a loss of about 0.")


@with_plugin([1, 1], epoch="1h")
async def test_a_job_that_is_good_enough_shrinks(c, s, plugin, a, b):
    good = slaq.job("a", client=c, target=0.9, target_kind="reduction")
    async with good as job, slaq.job("b", client=c):
        await report_epochs(plugin, job, [1.0 + 10 * 0.6**i for i in range(25)])
        assert inside(plugin).job("a").max_share == pytest.approx(0.1)
        assert 1.5 < inside(plugin).job("a").target < 2.5
        # It goes on with what others leave.
        assert await c.gather(in_job(c, "a").map(inc, range(10))) == list(range(1, 11))
        tasks = map_in_each(c, "ab", wait_for, ["go"] * 6)
        pool = inside(plugin).pool("a")
        await until(lambda: pool.running and pool.ready)
        found = await slaq.explain("a", client=c)
        assert found["reason"].startswith("good enough: it reached its target")
        await slaq.change("a", max_share=1e6, client=c)
        assert "good enough" not in (await slaq.explain("a", client=c))["reason"]
        await let_end(c, tasks)


@with_plugin([1, 1], epoch="1h")
async def test_what_a_training_reached_before_it_began_again_does_not_count(c, s, plugin, a, b):
    async with slaq.job("a", client=c, target=0.3, max_share=2) as job:
        await report_epochs(plugin, job, [0.01, 0.02, 0.03])  # of a learning-rate finder
        assert inside(plugin).job("a").max_share == pytest.approx(0.1)
        job.report(7.0, step=0)
        await report_epochs(plugin, job, [6.0])
        assert inside(plugin).job("a").max_share == 2


@with_plugin([1, 1], epoch="1h")
async def test_alerts_of_scores_say_so(c, s, plugin, a, b):
    seen = await alerts_of(c, s)
    async with slaq.search("grid", client=c, maximize=True), slaq.job("up", client=c) as job:
        await report_epochs(plugin, job, [1.0 - 0.4**i for i in range(50)])
    await until(lambda: [alert["event"] for alert in seen].count("done") == 2)
    words = "its score has risen by less than 1 % of its range in 32 reports"
    for flat, end in (seen[i::2] for i in range(2)):
        assert flat["message"].endswith(words)
        assert end["message"].endswith("with a score of 1") and end["loss"] == 1.0


@with_plugin([1, 1], epoch="1h")
async def test_alerts_come_once_and_say_what_happened(c, s, plugin, a, b):
    seen = await alerts_of(c, s)
    async with (
        slaq.job("flat", client=c) as flat,
        slaq.job("up", client=c) as up,
        slaq.job("never", client=c, target=-5, by="1ms") as never,
        slaq.job("reward", client=c) as reward,
        slaq.job("tuned", client=c, max_iter=50) as tuned,
    ):
        for i in range(50):
            flat.report(1.0 + 0.4**i)
            up.report(1.0 + i**2)
            tuned.report(1.0 + i / 20 if i < 20 else 2.0 - (i - 20) / 15)  # it rises first
            # It stays for 20 reports, and loses more than half of its gain before it goes on.
            reward.report(5.0 - min(i, 10) + min(max(i - 30, 0), 8) - 2 * max(i - 40, 0))
            await report_epochs(plugin, never, [1.0 + 0.4**i])
    await until(lambda: sum(alert["event"] == "done" for alert in seen) == 5)
    names = ("flat", "up", "never", "reward", "tuned")
    kinds = {n: [alert["event"] for alert in seen if alert["job"] == n] for n in names}
    assert sorted(kinds.pop("never")) == ["done", "late", "stalled"]
    once = {"flat": ["converged", "done"], "up": ["diverged", "done"], "reward": ["done"]}
    assert kinds == once | {"tuned": ["done"]}
    said = {(alert["job"], alert["event"]): alert["message"] for alert in seen}
    assert "has fallen by less than 1 % of its range in 32 reports" in said["flat", "converged"]
    assert said["up", "diverged"].endswith("above its first one of 1")


@pytest.mark.parametrize("by", ["10min", "10 min", "10m", 600, "600s"])
def test_a_deadline_is_given_in_common_units(by):
    assert slaq.job("a", target=1.0, by=by)._settings["by"] == 600
