"""Job blocks of synchronous clients work from threads and tasks, nested, and when reused."""

import contextvars
import threading
from collections.abc import Iterator

import dask
import pytest
from distributed import Client
from distributed.utils_test import captured_logger, inc
from driving import assert_nothing_left, inside, until, where

import dask_slaq as slaq
from dask_slaq.core.errors import SlaqError, UnknownJob


@pytest.fixture(scope="module", autouse=True)
def registered(client: Client) -> None:
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))


@pytest.fixture
def plugin(client: Client) -> Iterator[slaq.SlaqPlugin]:
    """The plugin on the scheduler; nothing may be left of the test's jobs."""
    scheduler = client.cluster.scheduler
    plugin = scheduler.plugins["slaq"]
    yield plugin
    assert plugin.failed is None
    client.sync(until, lambda: not inside(plugin).pools)
    assert_nothing_left(scheduler, plugin)


def test_a_thread_started_in_a_block_reports_by_the_job(client, plugin):
    errors = []

    def work(job):
        try:
            slaq.report(1.0)
        except UnknownJob as error:
            errors.append(str(error))
        job.report(1.0)

    with slaq.job("a") as job:
        thread = threading.Thread(target=work, args=(job,))
        thread.start()
        thread.join()
        client.sync(until, lambda: inside(plugin).job("a").iteration == 1)
    assert len(errors) == 1 and "job.report" in errors[0]


def test_a_block_that_ends_at_once_keeps_its_reports(client, plugin):
    reported = []
    report = inside(plugin).report
    inside(plugin).report = lambda job, loss, *at: (reported.append(loss), report(job, loss, *at))
    with slaq.job("a") as job:
        for k in range(100):
            job.report(float(k))
    del inside(plugin).report
    assert reported == [float(k) for k in range(100)]


def test_a_function_that_reports_its_state_also_trains_in_a_job(client, plugin):
    step = slaq.resume() or 0
    with slaq.job("a") as job:
        while step < 3:
            step += 1
            slaq.report(1 / step, state=step)
        assert job.iteration == 3


def test_a_report_does_not_wait_for_the_scheduler(client, plugin):
    release = threading.Event()
    with slaq.job("a") as job:
        client.cluster.scheduler.loop.add_callback(release.wait, 30)
        for k in range(1000):
            job.report(1.0 / (k + 1))  # the scheduler's loop stands still all the while
        assert inside(plugin).job("a").iteration == 0
        release.set()
    assert job.iteration == 1000


def test_a_job_object_can_be_used_again(client, plugin):
    job = slaq.job("a")
    for _ in range(2):
        with job:
            job.report(1.0)
            assert job.iteration == 1


def run(function):
    """Run a function in a thread of its own, and wait."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def test_a_block_left_in_another_thread_ends_the_job(client, plugin):
    job = slaq.job("a")
    with captured_logger("dask_slaq", propagate=False) as log:
        run(job.__enter__)
        job.report(1.0)
        job.__exit__(None, None, None)
    assert log.getvalue().count("job a was left elsewhere than it was entered") == 1
    with pytest.raises(UnknownJob):
        job.report(1.0)
    with slaq.job("a") as again:  # the name is free
        again.report(1.0)


def test_after_a_block_was_left_in_another_thread_its_own_goes_on_without_it(client, plugin):
    job = slaq.job("a")
    with captured_logger("dask_slaq", propagate=False):
        contextvars.copy_context().run(enter_leave_elsewhere_and_compute, client, job)
    assert {b.job for b in inside(plugin).bindings if b.key == "later"} == {"b"}


def enter_leave_elsewhere_and_compute(client, job):
    job.__enter__()
    run(lambda: job.__exit__(None, None, None))
    with pytest.raises(UnknownJob):
        slaq.report(1.0)
    with slaq.job("b"):
        assert client.submit(where, key="later").result()


def test_a_block_entered_twice_is_refused(client, plugin):
    with slaq.job("a") as job:
        with pytest.raises(SlaqError, match="twice"), job:
            pass
        job.report(1.0)
        assert "a" in inside(plugin).jobs


def test_blocks_nest_and_the_inner_one_counts(client, plugin):
    with slaq.job("outer") as outer:
        with slaq.job("inner") as inner:
            slaq.report(1.0)
            assert client.submit(where, key="nested").result()
        slaq.report(2.0)
        assert (outer.iteration, inner.iteration) == (1, 1)
    assert {b.job for b in inside(plugin).bindings if b.key == "nested"} == {"inner"}
    assert dask.get_annotations() == {}


def test_the_block_leaves_no_annotation_or_client_behind(client, plugin):
    with pytest.raises(ZeroDivisionError), slaq.job("a"):
        raise ZeroDivisionError
    assert dask.get_annotations() == {}
    with pytest.raises(UnknownJob):
        slaq.report(1.0)


def test_a_job_uses_the_client_it_is_given(client, plugin):
    with Client(client.cluster, set_as_default=False) as other:
        with slaq.job("a", client=other):
            assert inside(plugin).pool("a").client == other.id
            assert dask.delayed(inc)(1).compute() == 2  # through the job's client
        assert inside(plugin).pools == {}
