"""The same script runs on a laptop, whose scheduler does not run the plugin."""

import dask
import pytest
from distributed.utils_test import captured_logger, inc
from driving import small_cluster

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, NoPlugin


@pytest.fixture
def client():
    with small_cluster(1) as client:
        yield client


def script(client):
    """A script that steers its own jobs."""
    slaq.alerts(print)
    losses = []
    with slaq.job("a") as job:
        job.set(weight=2, max_share=float("inf"))
        job.pause()
        job.unpause()
        slaq.pause("a")
        slaq.unpause("a")
        slaq.progress("a", notebook=True)
        for k in range(100):
            losses.append(client.submit(inc, k, pure=False).result())
            if k == 4:
                job.stop()
            try:
                job.report(1 / losses[-1])
            except slaq.StopTraining:
                break
    return losses


@pytest.mark.parametrize("plugin", [False, True], ids=["laptop", "cluster"])
def test_the_same_script_runs_with_the_plugin_and_without(client, plugin):
    if plugin:
        client.register_plugin(slaq.SlaqPlugin(epoch="50ms"))
    with captured_logger("dask_slaq.client") as log:
        losses = script(client)
    assert 5 <= len(losses) < 100
    assert plugin or len(losses) == 5
    assert log.getvalue().count("jobs run under plain Dask") == (not plugin)


def test_a_target_stops_a_job_without_the_plugin(client):
    def losses_until_stopped(**settings):
        with slaq.job("a", stop=True, **settings) as job:
            job.set(target=0.2)
            for k in range(100):
                try:
                    job.report(1 / (1 + k))
                except slaq.StopTraining:
                    return k + 1
        return None

    assert losses_until_stopped(target=0.1) == 5
    assert losses_until_stopped(target=0.1, target_kind="reduction") is None


def test_what_cannot_do_without_the_plugin_says_so(client):
    with slaq.job("a") as job:
        for query in (slaq.status, slaq.history, slaq.client.bindings, lambda: slaq.explain("a")):
            with pytest.raises(NoPlugin, match="does not run SlaqPlugin: register it by"):
                query()
        with pytest.raises(NoPlugin):
            slaq.pause("another")
        with pytest.raises(InvalidSetting, match="weight"):
            job.set(weight=-1)
        with dask.config.set({"slaq.require-plugin": True}):
            for call in (job.pause, job.stop, slaq.alerts, slaq.progress):
                with pytest.raises(NoPlugin):
                    call()
            job.report(1.0)
    with (
        dask.config.set({"slaq.require-plugin": True}),
        pytest.raises(NoPlugin, match="--preload dask_slaq") as error,
        slaq.job("b"),
    ):
        pass
    assert client.scheduler.address in str(error.value)
