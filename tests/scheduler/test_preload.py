"""``dask scheduler --preload dask_slaq`` schedules jobs as a registered plugin does."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from distributed import Scheduler
from distributed.utils_test import gen_test
from driving import PATIENCE, gen_cluster

import dask_slaq as slaq

DASK = [sys.executable, "-m", "dask"]


@contextlib.contextmanager
def running(*command: str) -> Iterator[None]:
    """A process for the time of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


DRIVER = """
    import json, sys, threading
    from distributed import Client
    import dask_slaq as slaq

    with Client(scheduler_file=sys.argv[1]) as client:
        client.wait_for_workers(2)

        def train(name, start):
            with slaq.job(name, client=client) as job:
                for k in range(1, 9):
                    squares = client.map(pow, range(6), [2] * 6, pure=False)
                    total = client.submit(sum, squares, pure=False).result()
                    job.report(start / k)
            totals[name] = total

        totals = {}
        threads = [threading.Thread(target=train, args=(f"job-{n}", n)) for n in (1.0, 2.0)]
        for thread in threads:
            thread.start()
        status = slaq.status(client)
        for thread in threads:
            thread.join()
        history = slaq.history(client)
        print(json.dumps({
            "totals": totals,
            "policy": status["policy"],
            "epoch": status["epoch"],
            "jobs": sorted(map(str, history.job.values)),
            "left": sorted(slaq.status(client)["jobs"]),
        }))
"""


@pytest.mark.slow
def test_jobs_under_a_preloaded_scheduler(tmp_path: Path) -> None:
    place = str(tmp_path / "scheduler.json")
    scheduler = [*DASK, "scheduler", "--port", "0", "--no-dashboard", "--scheduler-file", place]
    worker = [*DASK, "worker", "--scheduler-file", place, "--nthreads", "1", "--no-nanny"]
    worker += ["--no-dashboard", "--local-directory", str(tmp_path)]
    with (
        running(*scheduler, "--preload", "dask_slaq", "--policy", "fair", "--epoch", "500ms"),
        running(*worker),
        running(*worker),
    ):
        told = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(DRIVER), place],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout) == {
        "totals": {"job-1.0": 55, "job-2.0": 55},
        "policy": "fair",
        "epoch": 0.5,
        "jobs": ["job-1.0", "job-2.0"],
        "left": [],
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--policy", "best"], ["best", "max-total", "fair"]),
        (["--epoch", "-1s"], ["slaq.epoch", "-1s", "a time from 1ms to 1 day"]),
        (["--epok", "1s"], ["--epok"]),
    ],
    ids=str,
)
def test_a_bad_option_is_told_in_the_shell(options: list[str], words: list[str]) -> None:
    command = [*DASK, "scheduler", "--port", "0", "--no-dashboard", "--preload", "dask_slaq"]
    done = subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode != 0
    for word in words:
        assert word in done.stderr


def test_options_are_the_settings_and_told_in_help() -> None:
    told = CliRunner().invoke(slaq.dask_setup, ["--help"]).output
    for option in (
        "--policy",
        "--epoch",
        "--lend / --no-lend",
        "--normalizer",
        "--floor",
        "--other-weight",
        "--reserve",
        "--ahead",
        "--history",
        "--bindings",
        "--log",
        "--log-size",
        "--log-files",
    ):
        assert option in told


async def setup(server: object, *options: str) -> None:
    """What Dask does with a preload's options."""
    context = slaq.dask_setup.make_context("dask_slaq", list(options))
    await slaq.dask_setup.callback(server, **context.params)


@gen_test()
async def test_options_reach_the_plugin() -> None:
    async with Scheduler(dashboard_address=":0", port=0) as scheduler:
        await setup(scheduler, "--policy", "max-min", "--no-lend", "--reserve", "0.5")
        chosen = scheduler.plugins["slaq"].settings
        assert (chosen.policy, chosen.lend, chosen.reserve) == ("max-min", False, 0.5)
        assert chosen.epoch == 1.0


@gen_test()
async def test_a_preloaded_plugin_starts_once() -> None:
    """The scheduler starts every plugin that its preloads registered, after them."""
    with tempfile.TemporaryDirectory() as place:
        argv = ["--log", f"{place}/slaq.jsonl", "--policy", "fair"]
        async with Scheduler(
            dashboard_address=":0", port=0, preload=["dask_slaq"], preload_argv=[argv]
        ) as scheduler:
            assert scheduler.plugins["slaq"].settings.policy == "fair"
        (event,) = map(json.loads, Path(place, "slaq.jsonl").read_text().splitlines())
    assert event["event"] == "start"


@gen_test()
async def test_a_plugin_that_was_stopped_starts_again() -> None:
    async with Scheduler(dashboard_address=":0", port=0) as scheduler:
        await setup(scheduler)
        plugin = scheduler.plugins["slaq"]
        before = plugin.jobs
        await plugin.start(scheduler)
        assert plugin.jobs is before
        plugin.stop()
        await plugin.start(scheduler)
        assert plugin.jobs is not before


@gen_test()
async def test_wrong_values_are_usage_errors() -> None:
    async with Scheduler(dashboard_address=":0", port=0) as scheduler:
        with pytest.raises(click.UsageError, match="reserve must be a fraction"):
            await setup(scheduler, "--reserve", "2")
        with pytest.raises(click.UsageError, match=r"file that the scheduler can write, not '/no/"):
            await setup(scheduler, "--log", "/no/such/folder/log")
        with pytest.raises(click.UsageError, match="max-total"):
            await setup(scheduler, "--policy", "best")
        assert "slaq" not in scheduler.plugins


@gen_cluster(nthreads=[("127.0.0.1", 1)])
async def test_preloading_on_a_worker_does_nothing_but_say_so(s, a):
    await setup(a)
    assert "slaq" not in s.plugins
