"""A driver loop that keeps its state goes on from it when its program is started again."""

import contextlib
from unittest import mock

import pytest
from distributed import Client
from driving import TWO, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import UnknownJob
from dask_slaq.scheduler import job_states

STEPS = 6


async def loop(client, made, *, dies_at=None):
    async with slaq.job("driver", client=client) as job:
        step = await slaq.resume() or 0
        while step < STEPS:
            step += 1
            made.append(step)
            if job._state is not None:
                job._state._due = 0.0  # without the pause between two states
            assert await job.keep(lambda now=step: now)
            job.report(1 / step)
            if step == dies_at:
                raise RuntimeError("dies")


@with_plugin(TWO)
async def test_a_program_that_is_started_again_goes_on(c, s, plugin, a, b):
    made = []
    async with Client(s.address, asynchronous=True) as first:
        with pytest.raises(RuntimeError):
            await loop(first, made, dies_at=4)
    names = plugin.job_states.of(*next(iter(plugin.job_states._names)))
    assert len({ws for name in names for ws in s.tasks[name].who_has}) == 2
    await a.close()
    async with Client(s.address, asynchronous=True) as second:
        await loop(second, made)
        assert made == list(range(1, STEPS + 1))
        await until(lambda: not plugin.job_states and not s.tasks)
        assert "slaq-job-states" not in s.clients
        await loop(second, made)  # it was done: the next one begins anew
        assert made == 2 * list(range(1, STEPS + 1))
    assert plugin.failed is None


@with_plugin(TWO)
async def test_states_are_kept_once_per_second(c, s, plugin, a, b):
    async with slaq.job("driver", client=c) as job:
        assert await slaq.resume() is None
        assert [await job.keep(k) for k in range(3)] == [True, False, False]
        assert await slaq.resume() == 0
    with pytest.raises(UnknownJob):
        job.keep(1)


@with_plugin(TWO)
async def test_what_cannot_be_pickled_is_not_kept(c, s, plugin, a, b):
    async with slaq.job("driver", client=c) as job:
        assert await job.keep([open, (x for x in ())]) is False
        assert await slaq.resume() is None
    assert plugin.failed is None


@with_plugin(TWO)
async def test_an_owner_with_many_states_drops_its_own(c, s, plugin, a, b):
    async def keep(name, owner):
        async with slaq.job(name, client=c, owner=owner) as job:
            assert await job.keep(0)
            raise RuntimeError("dies")

    with mock.patch.object(job_states, "MOST", 4):
        for name in ("bob-0", *(f"ann-{k}" for k in range(8)), "eve-0"):
            with contextlib.suppress(RuntimeError):
                await keep(name, name[:3])
        kept = {name for _, name in plugin.job_states._names}
    assert kept == {"bob-0", "ann-6", "ann-7", "eve-0"}
