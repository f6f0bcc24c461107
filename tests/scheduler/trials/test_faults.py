"""Whatever fails while trials wait in their report, they go on, and all results arrive."""

import pytest
from distributed import Status
from distributed.utils_test import captured_logger
from driving import another_client, assert_nothing_left, inside, start_plugin, until, with_plugin
from moving import descend

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.reports import MOST_LOSSES
from dask_slaq.core.trials import TrialEvent
from dask_slaq.scheduler.requests.validation import check_trial
from dask_slaq.worker.trial_agent import agent_of

STEPS = 60


async def begin(client, plugin):
    """A search of which some trials wait: the plugin's record of it, and its futures."""
    async with slaq.search("grid", client=client, steps=STEPS):
        futures = client.map(descend, range(8), steps=STEPS, pure=False)
    await until(lambda: inside(plugin).trials("grid").waiting >= 3)
    return inside(plugin).search("grid"), futures


def waiting(*workers) -> int:
    return sum(slot.waits for worker in workers for slot in agent_of(worker).slots.values())


async def check_all_go_on(client, futures, *workers):
    await until(lambda: not waiting(*workers))
    assert await client.gather(futures) == list(range(len(futures)))


@pytest.mark.parametrize("what", ["failed choice", "unregistered", "silence"])
@with_plugin([1, 1], may_fail=True)
async def test_without_the_plugin_all_go_on(c, s, plugin, a, b, what):
    search, futures = await begin(c, plugin)
    with captured_logger("dask_slaq") as log:
        if what == "failed choice":
            search.trials.forecast = None  # not callable
        elif what == "unregistered":
            await c.unregister_scheduler_plugin("slaq")
        else:
            plugin.searches.agents.send = lambda *args: None
        await check_all_go_on(c, futures, a, b)
    assert ("every task is left to Dask" in log.getvalue()) == what.startswith("fail")


@with_plugin([1, 1])
async def test_a_waiting_task_is_cancelled(c, s, plugin, a, b):
    search, futures = await begin(c, plugin)
    waits = next(key for key, trial in search.trials.alive.items() if trial.state.waits)
    await next(f for f in futures if f.key == waits).cancel()
    await until(lambda: all(waits not in agent_of(w).slots for w in (a, b)))
    rest = [f for f in futures if f.key != waits]
    assert sorted(await c.gather(rest)) == sorted(i for i in range(8) if futures[i].key != waits)


@pytest.mark.parametrize("how", ["paused", "retired", "lost"])
@with_plugin([1, 1])
async def test_a_worker_leaves_or_is_paused(c, s, plugin, a, b, how):
    search, futures = await begin(c, plugin)
    if how == "paused":
        a.status = Status.paused
        await until(lambda: not waiting(a))
        a.status = Status.running
    elif how == "retired":
        await c.retire_workers([a.address])
    else:
        await a.close(executor_wait=False)
    assert await c.gather(futures) == list(range(8))
    await until(lambda: not inside(plugin).searches)
    done = [t for t in plugin.searches.ended.get(search.run) if t["state"] == "done"]
    assert [t["iteration"] for t in done] == [STEPS] * 8


@with_plugin([1, 1])
async def test_the_client_leaves(c, s, plugin, a, b):
    other = await another_client(s)
    await begin(other, plugin)
    await other.close()
    await until(lambda: not inside(plugin).searches and not s.tasks)
    await until(lambda: not waiting(a, b))
    assert_nothing_left(s, plugin)
    assert await c.submit(sum, [1, 2]) == 3


@with_plugin([1, 1], may_fail=True)
async def test_the_plugin_is_registered_anew(c, s, plugin, a, b):
    _, futures = await begin(c, plugin)
    plugin.failed = "test"  # a plugin that runs jobs and has not failed is not replaced
    new = await start_plugin(c, s)
    await check_all_go_on(c, futures, a, b)
    assert_nothing_left(s, new)


@pytest.mark.parametrize("where", ["charges.charge_part", "tracker.resumed"])
@with_plugin([1, 1], may_fail=True)
async def test_an_error_of_our_own_is_no_dropped_message(c, s, plugin, a, b, where):
    """Half way through an account."""
    _, futures = await begin(c, plugin)
    with captured_logger("dask_slaq") as log:
        part, method = where.split(".")
        broken = lambda *args, **kwargs: {}["of our own"]  # noqa: E731
        setattr(getattr(plugin.pools, part), method, broken)
        await until(lambda: plugin.failed)
        assert plugin.failed == "KeyError: 'of our own'"
        await check_all_go_on(c, futures, a, b)
    assert "dropped a message" not in log.getvalue()
    assert "every task is left to Dask's own scheduling" in log.getvalue()


@with_plugin([1, 1])
async def test_a_message_with_any_number_of_losses_is_bounded(c, s, plugin, a, b):
    search, _futures = await begin(c, plugin)
    trial = next(trial for trial in search.trials.alive.values() if trial.state.waits)
    ts = s.tasks[trial.key]
    about = {"key": ts.key, "run_id": ts.run_id, "what": "keeps", "computed": 0.0, "waited": 0.0}
    many = {"losses": [0.5] * 10_000, "steps": list(range(1, 10_001)), "at": 1.0}
    worker = a if trial.worker == a.address else b
    worker.batched_stream.send({"op": "slaq-trial", **about, **many})
    await until(lambda: trial.step >= 10_000)
    assert trial.reports <= MOST_LOSSES + STEPS


@pytest.mark.parametrize("what", ["flies", "WAITS", 3, ["waits"], None])
def test_a_word_that_no_trial_says_is_refused(what):
    about = {"key": "x", "losses": [], "computed": 0.0, "waited": 0.0, "at": 0.0}
    assert check_trial({**about, "what": "waits"}).what is TrialEvent.WAITS
    with pytest.raises(InvalidSetting, match="a trial does one of reports, waits, goes, left, "):
        check_trial({**about, "what": what})
