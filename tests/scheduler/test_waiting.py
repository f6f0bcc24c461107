"""Who waits for something is woken by the change, and looks at nothing meanwhile."""

import asyncio

from driving import on_virtual_clock

import dask_slaq as slaq
from dask_slaq.scheduler.requests.handlers import WaitingRequests


def test_a_condition_is_looked_at_when_something_may_have_changed():
    async def scenario():
        waiting, looks, facts = WaitingRequests(), [], set()

        def holds(fact):
            looks.append(fact)
            return fact in facts

        tasks = [asyncio.ensure_future(waiting.until(lambda f=f: holds(f), 5)) for f in "ab"]
        await asyncio.sleep(0.05)
        assert looks == ["a", "b"]
        facts.add("a")
        waiting.look()
        await tasks[0]
        assert looks == ["a", "b", "a", "b"] and not tasks[1].done()
        tasks[1].cancel()
        await asyncio.gather(tasks[1], return_exceptions=True)
        waiting.look()
        assert len(looks) == 4 and not waiting._waiting
        await waiting.until(lambda: False, 0.01)
        await waiting.until(lambda: True, 0.01)

    asyncio.run(scenario())


def test_the_end_of_a_job_waits_for_its_reports_without_looking_again_and_again():
    looks = []

    async def scenario(client, cluster, plugin):
        async with slaq.job("a", client=client):
            pass
        job = slaq.job("a", client=client)
        async with job:
            runs = plugin.jobs.runs
            plugin.jobs.runs = lambda *job: looks.append(1) or runs(*job)
            job._losses.reports = 5  # that never arrive: it ends after two seconds
        assert not plugin.jobs.reports

    on_virtual_clock(scenario, [1])
    assert len(looks) < 30
