"""Who waits for something is woken by the change, and looks at nothing meanwhile."""

from driving import on_virtual_clock

import dask_slaq as slaq


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
