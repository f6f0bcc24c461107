"""A job that waits says what for, and one that reports no more is said to be silent."""

import asyncio

import pytest
from distributed import Event, secede
from driving import (
    HELD,
    alerts_of,
    begun,
    in_job,
    let_end,
    on_virtual,
    on_virtual_clock,
    state_of,
    until,
    wait_for,
    with_plugin,
    work,
)

import dask_slaq as slaq


async def train(client, job, steps, seconds=0.1):
    for k in range(steps):
        await client.submit(work, seconds, pure=False)
        job.report(1 / (k + 1))


def silences(steps, then, seconds=0.1):
    """The alerts of silence of job "a", and its reason after `then`."""

    async def scenario(client, cluster, plugin):
        seen = await alerts_of(client, cluster.scheduler)
        async with slaq.job("a", client=client) as job:
            await train(client, job, steps, seconds)
            await then(client)
            reason = (await slaq.explain("a", client=client))["reason"]
        await asyncio.sleep(1)
        return [alert["message"] for alert in seen if alert["event"] == "silent"], reason

    return on_virtual_clock(scenario, [1])


def test_a_run_that_hangs_in_a_step_is_silent_once():
    async def hangs(client):
        for _ in range(2):
            await client.submit(work, 30, pure=False)

    seen, reason = silences(20, hangs)
    assert len(seen) == 1
    assert seen[0].startswith("a: silent for 1") and seen[0].endswith(" s, usually 0.1 s")
    assert reason.endswith("; silent for 60 s, usually 0.1 s")


@pytest.mark.parametrize("seconds, steps, usual", [(2, 20, 0.1), (9, 20, 0.1), (200, 4, 10.0)])
def test_a_step_that_takes_a_while_is_not_silent(seconds, steps, usual):
    async def takes(client):
        await client.submit(work, seconds, pure=False)

    seen, reason = silences(steps, takes, usual)
    assert seen == [] and "silent" not in reason


def test_a_run_that_is_paused_or_waits_for_a_thread_is_not_silent():
    async def waits(client):
        await slaq.pause("a", client=client)
        await asyncio.sleep(40)
        await slaq.unpause("a", client=client)
        async with slaq.job("b", client=client, min_share=1):
            long = client.submit(work, 60, pure=False)
            await asyncio.sleep(0.2)
            task = in_job(client, "a").submit(work, 0.1, pure=False)
            await client.gather([long, task])

    assert silences(20, waits)[0] == []


@with_plugin([1, 1])
async def test_a_job_whose_task_is_pinned_to_a_worker_that_left_says_so(c, s, plugin, a, b):
    async with slaq.job("a", client=c) as job:
        await c.submit(sum, (1, 2))
        job.report(1.0)
        pinned = await begun(s, c.submit(wait_for, "go", workers=[b.address]))
        await b.close(executor_wait=False)
        await until(lambda: s.tasks[pinned.key].state == "no-worker")
        why = f"waits: its next task may only run on {b.address}, and no such worker runs"
        assert (await slaq.explain("a", client=c))["reason"] == why
        assert (await slaq.status(c))["jobs"]["a"]["state"] == "waiting"
        needs = c.submit(sum, (1, 2), resources={"GPU": 1}, pure=False)
        await state_of(s, needs, "no-worker")
        await c.cancel(pinned)
        await until(lambda: pinned.key not in s.tasks)
        why = "its next task needs GPU: 1, and no worker has that"
        assert why in (await slaq.explain("a", client=c))["reason"]
        await Event("go").set()
        await c.cancel(needs)


@on_virtual([1, 1])
async def test_a_run_that_waits_for_the_task_of_another_is_not_silent(client, cluster, plugin):
    seen = await alerts_of(client, cluster.scheduler)
    other = client.submit(work, 60, pure=False)
    async with slaq.job("a", client=client) as job:
        await train(client, job, 20)
        await client.submit(work, 0.1, other, pure=False)
    assert "silent" not in {alert["event"] for alert in seen}


@with_plugin([1])
async def test_what_seceded_and_what_finds_no_worker_is_said_so(c, s, plugin, a):
    def secede_and_wait():
        secede()
        Event("go").wait()

    async with slaq.job("a", client=c) as job:
        job.report(1.0)
        away = c.submit(secede_and_wait)
        await until(lambda: s.workers[a.address].long_running)
        found = await slaq.explain("a", client=c)
        assert found["reason"].startswith("runs 1 task that gave up their thread")
        assert (await slaq.status(c))["jobs"]["a"]["state"] == "running"
        await let_end(c, away)
        await a.close()
        await until(lambda: not s.workers)
        none = c.submit(sum, (1, 2), pure=False)
        await state_of(s, none, *HELD, "queued")
        assert (await slaq.explain("a", client=c))["reason"] == "waits: no worker runs"
        await c.cancel(none)
