"""Trainings in the background: results, errors and cancels arrive, and jobs are seen live."""

import contextlib
import time
from concurrent.futures import CancelledError, as_completed, wait

import pytest
import xarray as xr
from distributed.utils_test import inc
from driving import PATIENCE

import dask_slaq as slaq


@pytest.fixture(scope="module", autouse=True)
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(epoch="50ms"))


def train(n, start=1.0, fail=False):
    from distributed import get_client

    for k in range(n):
        get_client().submit(inc, k, pure=False).result()
        slaq.report(start / (1 + k))
        if fail:
            raise ZeroDivisionError("on purpose")
    return n


def forever():
    k = 0
    while True:
        time.sleep(0.02)
        slaq.report(1.0 / (k := k + 1))


def test_several_at_once_return_their_results(client):
    futures = [slaq.submit(train, n, name=f"job-{n}", weight=n, start=2.0) for n in (3, 4, 5)]
    assert [future.result(PATIENCE) for future in futures] == [3, 4, 5]
    assert [future.job.iteration for future in futures] == [3, 4, 5]
    assert slaq.status(client)["jobs"] == {}


def test_errors_and_cancels_reach_the_future(client):
    failed = slaq.submit(train, 3, name="a", fail=True)
    assert isinstance(failed.exception(PATIENCE), ZeroDivisionError)
    future = slaq.submit(forever, name="b")
    while future.job.iteration < 2:
        time.sleep(0.01)
    assert future.cancel()
    with pytest.raises(CancelledError, match="'b' was stopped"):
        future.result(PATIENCE)
    assert future.cancel()
    stopped = slaq.submit(forever, name="c", target=0.2, stop=True)
    with pytest.raises(CancelledError):
        stopped.result(PATIENCE)
    assert stopped.cancelled()
    with pytest.raises(slaq.core.errors.InvalidSetting):
        slaq.submit(train, 3, name="d", weight=-1)


def test_a_cancel_before_the_job_opens_is_not_lost(client):
    for k in range(5):
        future = slaq.submit(forever, name=f"early-{k}")
        assert future.cancel()
        with pytest.raises(CancelledError):
            future.result(PATIENCE)


def test_a_cancelled_future_is_one_of_concurrent_futures(client):
    def ends_well():
        with contextlib.suppress(slaq.StopTraining):
            forever()
        return "a model"

    ended = slaq.submit(train, 1, name="ended")
    assert ended.running()
    assert ended.result(PATIENCE) == 1
    assert not (ended.cancel() or ended.cancelled() or ended.running())
    called = []
    cancelled = slaq.submit(ends_well, name="cancelled")
    cancelled.add_done_callback(called.append)
    assert not cancelled.cancelled()
    assert cancelled.cancel()
    assert cancelled.cancelled()
    stopped = slaq.submit(ends_well, name="stopped")
    while not stopped.job.is_open:
        time.sleep(0.01)
    stopped.job.stop()
    assert set(as_completed([cancelled, stopped], 60)) == {cancelled, stopped}
    assert wait([cancelled, stopped], 60).not_done == set()
    assert called == [cancelled]
    assert cancelled.cancelled()
    with pytest.raises(CancelledError):
        cancelled.exception()
    assert stopped.result() == "a model"
    assert not stopped.cancelled()


def test_progress_ends_with_the_jobs(client, capsys):
    name = "[b]"  # users' text, of which nothing is interpreted
    future = slaq.submit(train, 30, name=name)
    while not slaq.status(client)["jobs"]:
        time.sleep(0.01)
    slaq.progress(name, interval=0.05)
    assert future.result(PATIENCE) == 30
    shown = capsys.readouterr().out
    assert "[b]" in shown
    assert "done" in shown
    assert "0.03333" in shown, "the last loss is that of the job's last report"


def test_a_widget_follows_the_jobs_of_a_notebook(client):
    pytest.importorskip("ipywidgets")
    future = slaq.submit(forever, name="<b>w</b>")
    while not slaq.status(client)["jobs"]:
        time.sleep(0.01)
    widget = slaq.progress(interval=0.05, notebook=True)
    before = widget.value
    deadline = time.monotonic() + 30
    while widget.value == before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "&lt;b&gt;w&lt;/b&gt;" in widget.value != before
    future.cancel()
    wait([future], 60)
    while ">stopped<" not in widget.value and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ">stopped<" in widget.value
    assert "trained for" in widget.value
    # A job that has ended already is shown as it ended.
    assert slaq.progress("<b>w</b>", notebook=True).value == widget.value


def test_the_history_survives_a_file(client, tmp_path):
    slaq.submit(train, 3, name="kept").result(PATIENCE)
    history = slaq.history(client)
    assert history.share.attrs["units"] == "threads"
    history.to_netcdf(tmp_path / "history.nc", engine="scipy")
    with xr.open_dataset(tmp_path / "history.nc", engine="scipy") as read:
        xr.testing.assert_identical(read.load(), history)
        assert list(read.job.values) == list(history.job.values)
