"""A scheduler process that is killed and started again on one store goes on where it was."""

import functools

import pytest
from distributed import Client
from distributed.utils_test import poll_for
from driving import PATIENCE
from scheduler_process import end, free_port, start_scheduler

import dask_slaq as slaq
from dask_slaq.memory import RunStore, read_runs

pytestmark = pytest.mark.slow

LOSSES = [0.1 + 0.9**k for k in range(60)]


wait_until = functools.partial(poll_for, timeout=PATIENCE)


def iteration(client):
    return slaq.status(client)["jobs"]["net"]["iteration"]


def test_a_client_that_reconnects_goes_on_where_it_was(tmp_path):
    path, port = tmp_path / "runs.db", str(free_port())
    options = ("tcp://127.0.0.1", "--port", port, "--memory", str(path))
    process, file = start_scheduler(tmp_path, *options)
    try:
        with Client(scheduler_file=file, set_as_default=False) as client:
            with slaq.job("net-lr0.1", client=client) as job:
                for loss in LOSSES:
                    job.report(loss)
            with slaq.job("net", client=client) as job:
                for loss in LOSSES[:40]:
                    job.report(loss)
                wait_until(lambda: iteration(client) == 40)
                reader = RunStore(path)
                wait_until(lambda: reader.unfinished(0.0))  # within a few seconds
                reader.close()
                process.kill()
                process.wait()
                (tmp_path / "scheduler.json").unlink()
                process, _ = start_scheduler(tmp_path, *options)
            wait_until(lambda: client.status == "running" and client.scheduler_comm is not None)
            with slaq.job("net", client=client) as job:
                found = slaq.status(client)["jobs"]["net"]
                assert (found["iteration"], found["like_runs"]) == (40, 1)
                for loss in LOSSES[40:]:
                    job.report(loss)
                wait_until(lambda: iteration(client) == 60)
            wait_until(lambda: len(read_runs(path)) == 2)
    finally:
        end(process)
    newest, oldest = read_runs(path)
    assert (newest.job, newest.iterations, newest.outcome) == ("net", 60, "done")
    assert (oldest.job, oldest.iterations, oldest.outcome) == ("net-lr0.1", 60, "done")
