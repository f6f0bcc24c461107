"""Losses of trials that are not finite, too large, complete, or of every n-th step."""

import math
import time

import pytest
from distributed import Event
from distributed.utils_test import captured_logger
from driving import alerts_of, inside, let_end, until, warn_again, with_plugin

import dask_slaq as slaq
from dask_slaq.worker.trial_agent import agent_of


def report_all(losses, seconds=0.005, **step):
    for loss in losses:
        time.sleep(seconds)
        slaq.report(loss, **step)
    return losses[-1]


@pytest.mark.parametrize("lost", [math.nan, 1e305])
@with_plugin([1, 1])
async def test_models_without_finite_losses_count_and_are_said_to_diverge(c, s, plugin, a, b, lost):
    seen, why = await alerts_of(c, s), "all its losses are nan or infinite"
    warn_again()
    with captured_logger("dask_slaq") as log:
        async with slaq.search("grid", client=c, steps=40) as search:
            futures = c.map(report_all, [[lost] * 40] * 4, pure=False)
            await until(lambda: inside(plugin).job("grid").iteration > 10, 20)
            for _ in range(3):
                before = inside(plugin).job("grid").iteration
                await until(lambda n=before: inside(plugin).job("grid").iteration > n, 20)
                plugin.run_once()
            found = await slaq.explain("grid", client=c)
            assert why in found["why"] and why in found["text"]
            await c.gather(futures)
            trials = await search.trials()
    assert log.getvalue().count("was dropped: only its iteration counts") == 1
    shown = [(trial["iteration"], math.isnan(trial["loss"])) for trial in trials]
    assert shown == [(40, True)] * 4
    assert min(trial["computed"] for trial in trials) >= 40 * 0.005
    await until(lambda: seen and seen[-1]["event"] == "done", 20)
    assert [alert["event"] for alert in seen] == ["diverged", "done"]
    assert (seen[0]["message"], seen[-1]["iteration"]) == (f"grid: {why}", 160)


@with_plugin([1])
async def test_waiting_models_with_losses_too_large_do_wait(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=40) as search:
        futures = c.map(report_all, [[1e305] * 40] * 6, pure=False)
        most = 0
        while not all(future.done() for future in futures):
            states = [trial["state"] for trial in await search.trials()]
            most = max(most, states.count("training"))
    assert most <= 3  # one, one that was just sent for, and one that begins
    await c.gather(futures)


@with_plugin([1])
async def test_a_verdict_on_a_curve_does_not_end_the_next_one(c, s, plugin, a):
    """As after a learning-rate finder, which the model is not judged by."""

    def find_rate_and_train():
        for _ in range(3):
            time.sleep(0.02)
            slaq.report(9.0)
        Event("judged").wait(20)
        report_all([1.0], step=0)
        return report_all([0.5, 0.4])

    async with slaq.search("grid", client=c, prune=True) as search:
        future = c.submit(find_rate_and_train)
        trials, agent = inside(plugin).trials("grid"), agent_of(a)
        trials.peers[None].is_hopeless = lambda trial, *_: trial.losses.first == 9.0
        await until(lambda: any(turn["prune"] for turn in agent._turns), 20)
        assert await let_end(c, future, "judged") == 0.4
    (row,) = await search.trials()
    assert (row["state"], row["iteration"]) == ("done", 3)


@with_plugin([3])
async def test_a_complete_model_is_kept(c, s, plugin, a):
    def train_to_the_end(every):
        for step in range(every, 61, every):
            time.sleep(0.02)
            if step + every > 60:
                Event("hopeless").wait(20)
            slaq.report(1 / step, step=step)
        return "complete"

    async with slaq.search("grid", client=c, steps=60, prune=True) as search:
        futures = [c.submit(train_to_the_end, every, pure=False) for every in (1, 6)]
        trials = inside(plugin).trials("grid")
        await until(lambda: [t.step for t in trials.alive.values()] in ([59, 54], [54, 59]), 20)
        trials.peers[None].is_hopeless = lambda *_: True  # as they make their last step
        agent = agent_of(a)
        await until(lambda: any(len(turn["prune"]) == 2 for turn in agent._turns), 20)
        assert await let_end(c, futures, "hopeless") == ["complete"] * 2
    assert {trial["state"] for trial in await search.trials()} == {"done"}
