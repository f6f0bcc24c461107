"""Usage over schedulers that are killed: in the file while tasks run, and none of it twice."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from distributed import Client
from driving import PATIENCE
from scheduler_process import free_port, start_scheduler

import dask_slaq as slaq
from dask_slaq.memory import read_usage

pytestmark = pytest.mark.slow


def seconds_of_dask(client):
    def seconds(dask_scheduler):
        prefixes = dask_scheduler.task_prefixes.values()
        return sum(prefix.all_durations["compute"] for prefix in prefixes)

    return client.run_on_scheduler(seconds)


def test_usage_adds_up_over_schedulers_that_are_killed(tmp_path):
    path, port, of_dask = tmp_path / "runs.db", str(free_port()), 0.0

    def used():
        return sum(usage.core_seconds for usage in read_usage(path).values())

    def wait_until_used(seconds):
        begin = time.monotonic()
        while used() < seconds:
            assert time.monotonic() - begin < PATIENCE
            time.sleep(0.05)

    for life in range(3):
        (tmp_path / "scheduler.json").unlink(missing_ok=True)
        options = ("tcp://127.0.0.1", "--port", port, "--memory", str(path))
        scheduler, file = start_scheduler(tmp_path, *options)
        begin = ["--nthreads", "2", "--no-dashboard", "--no-nanny", "--scheduler-file", file]
        with open(tmp_path / "worker.log", "w") as log:
            command = [sys.executable, "-m", "dask", "worker", *begin]
            worker = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            with Client(scheduler_file=file, set_as_default=False) as client:
                client.wait_for_workers(1)
                with slaq.job(f"svm-{life}", client=client, owner="ann") as job:
                    job.report(1.0)
                    client.gather(client.map(time.sleep, [0.1] * 10, pure=False))
                client.gather(client.map(time.sleep, [0.1] * 5, pure=False))
                long = client.submit(time.sleep, 8, pure=False)
                wait_until_used(of_dask + seconds_of_dask(client) + 1)
                assert not long.done()
                long.result()
                of_dask += seconds_of_dask(client)
                wait_until_used(of_dask * 0.999)
                assert used() == pytest.approx(of_dask, rel=0.01)
                asked = slaq.usage(client=client)["rows"]
                assert sum(row["jobs"] for row in asked) == life + 1
                scheduler.kill()
        finally:
            for process in (scheduler, worker):
                process.kill()
                process.wait()
    assert used() == pytest.approx(of_dask, rel=0.01)
    assert read_usage(path, ["kind"])["svm",].done == 3
