"""Tasks of a job report its losses from workers."""

import asyncio
import pickle

import numpy as np
import pytest
from distributed import Event
from driving import PATIENCE, gen_cluster, inside, start_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import NonFiniteLoss, SlaqError, StopTraining, UnknownJob


def train(report, n):
    for step in range(n):
        report(1 / (step + 1))
    return n


@gen_cluster(client=True)
async def test_losses_arrive_before_the_result(c, s, a, b):
    plugin = await start_plugin(c, s)
    async with slaq.job("a", client=c) as job:
        assert await c.submit(train, job.reporter(), 10) == 10
        assert job.iteration == 10
        assert await c.submit(train, job.reporter(), 5, pure=False) == 5
        while inside(plugin).reports["a"] < 15:
            await asyncio.sleep(0.01)
        assert job.iteration == 15


def train_until_stopped(report, begun):
    for step in range(1_000_000):
        try:
            report(1.0)
        except StopTraining:
            return "so far"
        if step == 3:
            Event(begun).set()
        Event("never").wait(0.01)
    return "all"


@pytest.mark.parametrize("with_plugin", [True, False])
def test_a_stopped_job_ends_the_loop(local_client, with_plugin):
    if with_plugin:
        local_client.register_plugin(slaq.SlaqPlugin(policy="fair"))
        with slaq.job("a") as job:
            future = local_client.submit(train_until_stopped, job.reporter(), "begun")
            assert Event("begun").wait(PATIENCE)
            job.stop()
            assert future.result(PATIENCE) == "so far"
    else:
        with slaq.job("a", target=2.0, stop=True) as job:
            future = local_client.submit(train_until_stopped, job.reporter(), "begun")
            assert future.result(PATIENCE) == "so far"


def test_what_is_not_a_loss_is_refused_in_the_task(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(policy="fair"))
    with slaq.job("a") as job:
        report = job.reporter()
        for bad in (True, "1", None):
            with pytest.raises(NonFiniteLoss):
                local_client.submit(report, bad, pure=False).result()
        local_client.submit(report, np.float32(0.5), pure=False).result()
        assert job.iteration == 1
        local_client.submit(report, float("nan"), 5, pure=False).result()
        assert job.iteration == 5


def test_belongs_to_its_block(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(policy="fair"))
    job = slaq.job("a")
    with pytest.raises(UnknownJob, match="call reporter in its block"):
        job.reporter()
    with job:
        report = pickle.loads(pickle.dumps(job.reporter()))
        assert job.reporter() == report
    with job:
        local_client.submit(report, 1.0).result()  # of the block that was left
        local_client.submit(job.reporter(), 1.0, pure=False).result()
        assert job.iteration == 1 and job.reporter() != report


def test_a_search_has_none(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(policy="fair"))
    with (
        slaq.search("a") as search,
        pytest.raises(SlaqError, match=r"call dask_slaq.report\(loss\)"),
    ):
        search.reporter()
