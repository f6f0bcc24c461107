"""Short tasks with inputs are not held: they go to workers at once, in their job's turn."""

import asyncio
from time import monotonic

import dask
import pytest
from driving import HELD, in_job, inside, on_virtual, on_virtual_clock, state_of, tasks_of, work

import dask_slaq as slaq

SHORT, LONG = 0.01, 0.2


async def learn(client, seconds):
    """Let the scheduler know how long these tasks take in each of two jobs."""
    for name in ("a", "b"):
        data = in_job(client, name).submit(work, 0.0, name, pure=False)
        await in_job(client, name).submit(work, seconds, data, pure=False)


def chains(client, name, seconds, count, length=4):
    """Submit chains of tasks, each on a piece of data of its own."""
    ends = []
    with tasks_of(name):
        for i in range(count):
            last = client.submit(work, 0.0, i, pure=False)
            for _ in range(length):
                last = client.submit(work, seconds, last, pure=False)
            ends.append(last)
    return ends


def behind(ts):
    """Yield a task and all that it depends on, but for those without inputs."""
    if ts.dependencies:
        yield ts
        for dep in ts.dependencies:
            yield from behind(dep)


@pytest.mark.parametrize("lend", [True, False])
@pytest.mark.parametrize("seconds", [SHORT, LONG])
def test_short_tasks_with_inputs_are_sent_at_once_within_the_worker_set(seconds, lend):
    async def scenario(client, cluster, plugin):
        scheduler, outside, unrestricted = cluster.scheduler, [], []
        async with slaq.job("a", client=client), slaq.job("b", client=client):
            await learn(client, seconds)
            futures = [f for name in "ab" for f in chains(client, name, seconds, 4)]
            while not all(f.done() for f in futures):
                for ts in scheduler.tasks.values():
                    pool = inside(plugin).pool_of.get(ts.key)
                    if ts.processing_on is None or pool is None or not ts.dependencies:
                        continue
                    if ts.processing_on.address not in (ts.worker_restrictions or ()):
                        unrestricted.append(ts.key)
                    if ts.processing_on.address not in pool.granted.workers:
                        outside.append(ts.key)
                await asyncio.sleep(0.002)
            await client.gather(futures)
            mine = {ts.key for f in futures for ts in behind(scheduler.tasks[f.key])}
            log = scheduler.transition_log
            waited = mine & {key for key, _, finish, *_ in log if finish in HELD}
            assert not lend or bool(waited) == (seconds == LONG)
            found = [b for b in inside(plugin).bindings if b.key in mine]
            reasons = {b.reason for b in found if b.why == "short"}
            assert reasons <= ({"granted", "lent"} if lend else {"granted"})
            assert bool(reasons) == (seconds == SHORT)
        assert not unrestricted
        assert lend or not outside
        assert not any(inside(plugin).restricts(ts) for ts in scheduler.tasks.values())
        assert all(ts.priority[0] == 0 for ts in scheduler.tasks.values())

    on_virtual_clock(scenario, [1, 1], lend=lend)


@pytest.mark.parametrize("about", ["pause", "resources", "gang", "label"])
@on_virtual([1, 1], resources=[{"GPU": 1}] * 2, limits={"db": 1})
async def test_what_has_a_limit_is_held_however_short(client, cluster, plugin, about):
    given = {"gang": True} if about == "gang" else {}
    async with slaq.job("a", client=client, **given), slaq.job("b", client=client):
        await learn(client, SHORT)
        with tasks_of("a"):
            data = client.submit(work, 0.0, 1, pure=False)
            await data
            if about == "pause":
                await slaq.pause("a", client=client)
            of_tasks = {"resources": {"resources": {"GPU": 1}}, "label": {"slaq_limit": "db"}}
            with dask.annotate(**of_tasks.get(about, {})):
                future = client.submit(work, SHORT, data, pure=False)
        await state_of(cluster.scheduler, future, *HELD, "processing")
        log = [f for key, _, f, *_ in cluster.scheduler.transition_log if key == future.key]
        assert not set(HELD).isdisjoint(log)
        if about == "pause":
            await slaq.unpause("a", client=client)
        await future


@on_virtual([1, 1, 1, 1], policy="fair")
async def test_short_tasks_do_not_pass_a_job_that_waits_for_a_thread(client, cluster, plugin):
    used = {"short": 0.0, "long": 0.0}

    async def go(client, name, seconds, until):
        """Have sixteen tasks with inputs on their way at any time."""
        data = client.submit(work, 0.0, name, pure=False)

        async def one_by_one():
            while monotonic() < until:
                await client.submit(work, seconds, data, pure=False)
                used[name] += seconds

        with tasks_of(name):
            await asyncio.gather(*(one_by_one() for _ in range(16)))

    async with slaq.job("short", client=client), slaq.job("long", client=client):
        until = monotonic() + 3
        await asyncio.gather(go(client, "short", 0.02, until), go(client, "long", LONG, until))
    assert used["short"] < 1.5 * used["long"]  # 9.7 times as much without this rule
