"""Every mistake raises at the caller, with a message that names the value and what is allowed."""

import asyncio
import decimal
import math
import re
from unittest import mock

import numpy as np
import pytest
from distributed.utils_test import captured_logger, inc
from driving import another_client, in_job, inside, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.errors import (
    DuplicateJob,
    InvalidSetting,
    NonFiniteLoss,
    NoPlugin,
    SlaqError,
    UnknownJob,
)
from dask_slaq.scheduler.requests.handlers import WaitingRequests


class Hostile:
    def __float__(self):
        raise TypeError("no number")

    def __repr__(self):
        return "Hostile()"


NO_LOSSES = [np.array([1.0, 2.0]), None, "0.5", b"0.5", True, [1.0], 1j, Hostile()]
DROPPED = [math.nan, math.inf, -math.inf, np.float64("nan"), 1e301, 10**400, decimal.Decimal("NaN")]


@with_plugin([1])
async def test_a_loss_that_is_no_number_is_refused(c, s, plugin, a):
    async with slaq.job("a", client=c), slaq.job("b", client=c) as job:
        job.report(3.0)
        for loss in NO_LOSSES:
            with pytest.raises(NonFiniteLoss, match="must be a number, not ") as error:
                job.report(loss)
            assert repr(loss) in str(error.value)
        assert job.iteration == 1
        await until(lambda: inside(plugin).job("b").iteration == 1)
        assert await in_job(c, "a").submit(inc, 1) == 2


@with_plugin([1])
async def test_a_loss_that_is_not_finite_is_dropped_and_its_iteration_counts(c, s, plugin, a):
    with captured_logger("dask_slaq", propagate=False) as log:
        async with slaq.job("a", client=c) as job:
            for loss in (*DROPPED, 3.0, math.nan):
                job.report(loss)
            n = len(DROPPED) + 2
            assert job.iteration == n
            await until(lambda: inside(plugin).job("a").iteration == n)
            assert inside(plugin).job("a").loss == 3.0
            assert dropped_in(plugin) == 0
    assert log.getvalue().count("was dropped: only its iteration counts") == 1


@with_plugin([1])
async def test_steps_are_iterations(c, s, plugin, a):
    with captured_logger("dask_slaq", propagate=False) as log:
        async with slaq.job("a", client=c, max_iter=100) as job:
            for epoch in range(0, 50, 10):
                job.report(1 / (1 + epoch), step=epoch)
            slaq.report(0.01, 50)
            assert job.iteration == 51
            for step in (50, 3):
                job.report(0.01, step)
            for wrong in (-1, 1.5, "3", True, math.nan):
                with pytest.raises(InvalidSetting, match="step must be a whole number"):
                    job.report(0.01, wrong)
            assert job.iteration == 53
            await until(lambda: inside(plugin).job("a").iteration == 53)
            assert inside(plugin).reports["a"] == 8
            for bad in (-5, 2**60, "7", None, [1], True, math.nan, 0):
                message = {"op": "slaq-report", "job": "a", "loss": 0.01, "step": bad}
                c._send_to_scheduler(message)
            await until(lambda: inside(plugin).reports["a"] == 16)
            assert inside(plugin).job("a").iteration == 61
    assert log.getvalue().count("a step was not above the last one") == 1


@with_plugin([1])
async def test_a_report_outside_a_job_is_refused(c, s, plugin, a):
    with pytest.raises(UnknownJob, match=r"outside a job: call it in a 'with dask_slaq.job"):
        slaq.report(1.0)
    job = slaq.job("a", client=c)
    with pytest.raises(UnknownJob, match="job 'a' is not running: report inside"):
        job.report(1.0)
    async with job:
        slaq.report(1.0)
    with pytest.raises(UnknownJob, match="job 'a' is not running"):
        job.report(1.0)
    with pytest.raises(UnknownJob):
        slaq.report(1.0)


@with_plugin([1])
async def test_a_duplicate_name_is_refused_and_the_first_job_goes_on(c, s, plugin, a):
    async with another_client(s) as other:
        async with slaq.job("a", client=c, weight=2.0) as job:
            job.report(1.0)
            with captured_logger("distributed", propagate=False):
                for client in (c, other):
                    with pytest.raises(DuplicateJob, match="a job named 'a' is running already"):
                        await slaq.job("a", client=client).__aenter__()
            assert inside(plugin).job("a").weight == 2.0
            job.report(0.5)
            await until(lambda: inside(plugin).job("a").iteration == 2)
        async with slaq.job("a", client=other):
            pass


@pytest.mark.parametrize("name", ["", None, 3, b"a", "other:me"], ids=repr)
def test_names_that_are_not_allowed_are_refused(name):
    with pytest.raises(InvalidSetting, match="a job's name must be") as error:
        slaq.job(name)
    assert repr(name) in str(error.value)


def test_what_is_long_is_cut_in_the_sentence():
    huge = 10**400, [10**400] * 99
    given = [
        {name: value} for name in ("weight", "max_slowdown", "by", "resources") for value in huge
    ]
    for settings in ({"name": "x" * 257}, *given, {"resources": {"GPU": huge[0]}}):
        with pytest.raises(InvalidSetting) as error:
            slaq.job(**{"name": "a", **settings})
        assert len(str(error.value)) < 300
    slaq.job("x" * 256)


def test_without_a_client_every_call_says_so():
    for call in (slaq.status, slaq.history):
        with pytest.raises(NoPlugin, match="there is no Dask client here"):
            call()
    with pytest.raises(NoPlugin, match="there is no Dask client here"), slaq.job("a"):
        pass


def dropped_in(plugin):
    """Messages that were dropped, those that had a line in the log included."""
    held = inside(plugin).dropped
    return len(held) + sum(count for count, _ in held.values())


@with_plugin([1])
async def test_dropped_messages_do_not_hold_up_the_end_of_the_job(c, s, plugin, a):
    """The end waits for all reports that the client made: those that are dropped have come, too."""

    async def block():
        async with slaq.job("a", client=c) as job:
            for loss in (None, "1.0", True):
                c._send_to_scheduler({"op": "slaq-report", "job": "a", "loss": loss})
                job._losses.reports += 1
            job.report(1.0)

    with mock.patch.object(
        WaitingRequests.until, "__defaults__", (math.inf,)
    ):  # not only for two seconds
        await asyncio.wait_for(block(), 20)
    assert dropped_in(plugin) == 3
    assert not inside(plugin).reports


@with_plugin([1])
async def test_a_name_is_no_client(c, s, plugin, a):
    for ask in (slaq.status, slaq.history, slaq.ended):
        with pytest.raises(InvalidSetting, match=r"must be a distributed.Client, not 'a'"):
            ask("a")


@with_plugin([1])
async def test_a_client_is_no_name(c, s, plugin, a):
    for ask in (slaq.explain, slaq.pause, slaq.unpause, slaq.stop, slaq.usage, slaq.whatif):
        with pytest.raises(InvalidSetting, match=r"not <Client") as error:
            await ask(c)
        assert "\n" not in str(error.value)
    with pytest.raises(
        InvalidSetting, match=r"job must be a name.* passed as client=.*, not <Client"
    ):
        await slaq.change(c, weight=2)
    for ask in (slaq.set_policy, slaq.unreserve):
        with pytest.raises(InvalidSetting, match="not <Client"):
            await ask(c)
    with pytest.raises(InvalidSetting, match="no asynchronous client: await"):
        slaq.progress(client=c)


@with_plugin([1])
async def test_a_job_that_has_ended_is_explained(c, s, plugin, a):
    async with slaq.job("b after c", client=c) as job:
        for loss in (2.0, 0.98):
            job.report(loss)
        assert "policy" in await slaq.explain("b after c", client=c)
    found = await slaq.explain("b after c", client=c)
    assert {**found, "text": ""} == {"job": "b after c", "state": "done", "text": ""}
    text = r"b after c ended \d\.\d s ago after 2 iterations and .* s with a loss of 0.98"
    assert re.fullmatch(text, found["text"])
    for name in ("unknown", ["a"]):
        with pytest.raises((UnknownJob, InvalidSetting)):
            await slaq.explain(name, client=c)


def test_progress_of_what_does_not_run(local_client, capsys):
    local_client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    slaq.progress(notebook=False)
    assert capsys.readouterr().out == "no job is running\n"
    with slaq.job("mine") as job:
        job.report(0.5)
        with pytest.raises(UnknownJob, match=r"no job named 'nope' is running.*'mine'"):
            slaq.progress("nope", notebook=False)
    slaq.progress("mine", notebook=False, interval=0.05)
    assert "mine ended" in (shown := capsys.readouterr().out) and "done" in shown


def test_blocks_and_progress_of_a_synchronous_client(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    with pytest.raises(InvalidSetting, match="names of jobs, not <Client"):
        slaq.progress(local_client)

    async def enter():
        async with slaq.search("grid", client=local_client):
            raise AssertionError

    with pytest.raises(SlaqError, match="use 'with'"):
        asyncio.run(asyncio.wait_for(enter(), 20))


@with_plugin([1])
async def test_what_cannot_be_called_hears_no_alerts(c, s, plugin, a):
    for handler in (5, "x", c):
        with pytest.raises(InvalidSetting, match="takes a function that is called with an alert"):
            slaq.alerts(handler, client=c)


@pytest.mark.parametrize(
    "setting",
    [
        *({"steps": 1e13}, {"carries": 5}, {"carries": "tracker.run"}, {"trial_timeout": ""}),
        *({"silent": ""}, {"keep": ""}, {"by": ""}),
    ],
    ids=repr,
)
def test_a_setting_that_cannot_be_is_named(setting):
    block = slaq.job if "by" in setting else slaq.search
    with pytest.raises(InvalidSetting, match=next(iter(setting))):
        block("x", client=mock.Mock(), **setting)
