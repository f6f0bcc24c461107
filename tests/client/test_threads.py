"""Threads beside an open block: what they submit is not the job's, unless they are taken along."""

import asyncio
import contextlib
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from distributed import Client
from distributed.utils_test import captured_logger, inc
from driving import inside, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import UnknownJob

LOGGER = "dask_slaq.client.job_block"


@pytest.fixture
def cluster(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(policy="fair"))
    return local_client


def plugin_of(client):
    return client.cluster.scheduler.plugins["slaq"]


def job_of(client, future):
    return plugin_of(client).pools.records.pool_of[future.key].name


def begin(client, block=slaq.job):
    return block("a", client=client)


def submit(client, value):
    future = client.submit(inc, value, pure=False)
    assert future.result() == value + 1
    return job_of(client, future)


@pytest.mark.parametrize("block", [slaq.job, slaq.search])
def test_a_thread_outside_of_the_open_block_is_said_once(cluster, block):
    with captured_logger(LOGGER, logging.WARNING) as log:
        with begin(cluster, block), ThreadPoolExecutor(4) as pool:
            jobs = list(pool.map(lambda k: submit(cluster, k), range(8)))
            assert submit(cluster, 0) == "a"
        said = log.getvalue()
    assert set(jobs) == {f"other:{cluster.id}"}
    assert said.count("outside of the open block of 'a'") == 1
    assert "bind(" in said


@pytest.mark.parametrize("block", [slaq.job, slaq.search])
def test_a_bound_function_takes_its_thread_along(cluster, block):
    with captured_logger(LOGGER, logging.WARNING) as log:
        with begin(cluster, block) as mine, ThreadPoolExecutor(4) as pool:
            bound = mine.bind(lambda k: submit(cluster, k))
            assert set(pool.map(bound, range(8))) == {"a"}
        assert log.getvalue() == ""
    with pytest.raises(UnknownJob, match="outside of the block of 'a'"):
        mine.bind(submit)


def test_tasks_of_the_job_that_submit_are_not_meant(cluster):
    def nested():
        from distributed import get_client

        return get_client().submit(inc, 1, pure=False).result()

    with captured_logger(LOGGER, logging.WARNING) as log, begin(cluster):
        assert cluster.submit(nested).result() == 2
    assert log.getvalue() == ""


def test_a_training_in_the_background_is_not_meant(cluster):
    def train(go):
        go.wait()

    go = threading.Event()
    with captured_logger(LOGGER, logging.WARNING) as log:
        future = slaq.submit(train, go, name="background", client=cluster)
        job = plugin_of(cluster).jobs
        while not job.entered:
            time.sleep(0.01)
        assert cluster.submit(inc, 1, pure=False).result() == 2
        go.set()
        future.result()
    assert log.getvalue() == ""


def test_nothing_is_said_of_what_was_known_before_the_block_nor_after_it(cluster):
    import dask.array as da

    x = da.ones(40, chunks=10) + 1
    before = cluster.compute(x.sum())
    assert before.result() == 80
    persisted = x.persist()
    with captured_logger(LOGGER, logging.WARNING) as log:
        with begin(cluster):
            assert cluster.compute(x.sum()).result() == 80  # the key of `before`
            assert cluster.compute(x.mean()).result() == 2
            assert persisted.max().compute() == 2
        submit_plain = cluster.submit(inc, 1)
        assert submit_plain.result() == 2
        with begin(cluster, slaq.search):
            futures = cluster.map(inc, range(4))
        cluster.gather(futures)
        assert cluster.submit(inc, 10).result() == 11
        assert log.getvalue() == ""


def test_what_a_block_computes_that_another_job_has_submitted_is_not_meant(cluster):
    """As where fits of several threads, each with a client and a job, begin with equal tasks."""
    with captured_logger(LOGGER, logging.WARNING) as log, begin(cluster):
        result = cluster.submit(inc, cluster.submit(inc, 1, key="equal"))
        result.result()  # what it needs is known, and released
        with (
            Client(cluster.scheduler.address, set_as_default=False) as other,
            other.as_current(),
            slaq.job("b", client=other),
        ):
            assert other.submit(inc, 1, key="equal").result() == 2
        assert log.getvalue() == ""


@with_plugin([1, 1])
async def test_coroutines_of_one_client_are_not_meant(c, s, plugin, a, b):
    with captured_logger(LOGGER, logging.WARNING) as log:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def job():
            async with slaq.job("a", client=c):
                entered.set()
                await leave.wait()

        task = asyncio.create_task(job())
        await entered.wait()
        assert await c.submit(inc, 1) == 2
        leave.set()
        await task
        await until(lambda: not inside(plugin).reports)
        assert log.getvalue() == ""


def test_reports_of_several_threads_all_count(cluster, monkeypatch):
    """What another thread does in the midst of a report does not undo it."""
    with begin(cluster) as mine, ThreadPoolExecutor(8) as pool:
        said = mine._say
        meet = threading.Barrier(2)

        def say(op, **what):
            with contextlib.suppress(threading.BrokenBarrierError):
                meet.wait(0.02)  # the other one, unless only one may be here
            return said(op, **what)

        monkeypatch.setattr(mine, "_say", say)
        list(pool.map(lambda k: mine.report(1 / (k + 1)), range(16)))
        assert (mine.iteration, mine._losses.reports) == (16, 16)
        mailboxes = pool.map(lambda k: mine.reporter().address.inbox, range(8))
        assert len(set(mailboxes)) == 1
        monkeypatch.undo()
    plugin = plugin_of(cluster)
    assert [row["iteration"] for row in inside(plugin).ended] == [16]
