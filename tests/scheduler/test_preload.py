"""``dask scheduler --preload dask_slaq`` schedules jobs as a registered plugin does."""

import contextlib
import functools
import json
import os
import subprocess
import sys
import time

import click
import dask
import pytest
from click.testing import CliRunner
from distributed import Client, Scheduler
from distributed.utils_test import captured_logger, gen_test
from driving import PATIENCE, forget_shown, gen_cluster, page_of

import dask_slaq as slaq
from dask_slaq.cli.main import slaq as command
from dask_slaq.core.errors import NoPlugin
from dask_slaq.core.settings import NOT_STARTED

#: A scheduler in a process of its own; the file that says where it is comes next.
DASK = [sys.executable, "-m", "dask", "scheduler", "--port", "0", "--no-dashboard"]
a_scheduler = functools.partial(Scheduler, dashboard_address=":0", port=0)


def test_options_are_the_settings_and_told_in_help() -> None:
    told = CliRunner().invoke(slaq.dask_setup, ["--help"]).output
    options = "policy epoch normalizer floor other-weight reserve prefetch history bindings log"
    for option in (*options.split(), "lend / --no-lend", "log-size", "log-files"):
        assert f"--{option}" in told


async def setup(server: object, *options: str) -> None:
    """What Dask does with a preload's options."""
    context = slaq.dask_setup.make_context("dask_slaq", list(options))
    await slaq.dask_setup.callback(server, **context.params)


@gen_test()
async def test_the_log_says_what_an_operator_has_set(tmp_path) -> None:
    given = {
        "slaq.owners": {"ann": {"weight": 2}, "default": {"max-jobs": 4}},
        "slaq.limits": {"database": 8},
        "slaq.operators": ["root@head"],
        "slaq.run-history": str(tmp_path / "runs.db"),
        "slaq.lock": True,
    }
    with dask.config.set(given), captured_logger("dask_slaq", level="INFO") as log:
        async with a_scheduler() as scheduler:
            await setup(scheduler, "--policy", "fair")
    said = "policy fair; epoch 1 s; owners ann, default; limits database 8; operators root@head"
    assert f"dask_slaq: {said}; run history {tmp_path / 'runs.db'}; locked\n" in log.getvalue()


@gen_test()
async def test_a_preloaded_plugin_starts_once(tmp_path) -> None:
    """The scheduler starts every plugin that its preloads registered, after them."""
    argv = ["--log", f"{tmp_path}/slaq.jsonl", "--policy", "fair"]
    async with a_scheduler(preload=["dask_slaq"], preload_argv=[argv]) as scheduler:
        assert scheduler.plugins["slaq"].settings.policy == "fair"
    (event,) = map(json.loads, (tmp_path / "slaq.jsonl").read_text().splitlines())
    assert event["event"] == "start"


@gen_test()
async def test_a_plugin_that_was_stopped_starts_again() -> None:
    async with a_scheduler() as scheduler:
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
    async with a_scheduler() as scheduler:
        for options, words in (
            (["--reserve", "2"], "reserve must be a fraction"),
            (["--log", "/no/such/folder/log"], "file that the scheduler can write, not '/no/"),
            (["--policy", "best"], "max-total"),
        ):
            with pytest.raises(click.UsageError, match=words):  # as Dask does on a command line
                slaq.dask_setup.parse_args(click.Context(slaq.dask_setup), [*options])
            await setup(scheduler, *options)  # as Dask does with preload-argv
            assert words in scheduler.plugins[NOT_STARTED].why
        assert "slaq" not in scheduler.plugins


@gen_cluster(nthreads=[1])
async def test_preloading_on_a_worker_does_nothing_but_say_so(s, a):
    await setup(a)
    assert "slaq" not in s.plugins


#: A misspelt setting, and what is said of it.
MISSPELT, NEAR = {"slaq.epok": "2s"}, "slaq.epok is not a setting: did you mean slaq.epoch?"
PRELOADED = {"distributed.scheduler.preload": ["dask_slaq"]}
BY_CONFIGURATION = {"DASK_DISTRIBUTED__SCHEDULER__PRELOAD": '["dask_slaq"]'}
WAYS = pytest.mark.parametrize(
    ("options", "environment"),
    [(["--preload", "dask_slaq"], {}), ([], BY_CONFIGURATION)],
    ids=["by option", "by configuration"],
)


@pytest.mark.slow
@WAYS
def test_a_misspelt_setting_is_one_line_and_commands_repeat_it(options, environment, tmp_path):
    place, log = tmp_path / "scheduler.json", tmp_path / "log"
    start = [*DASK, "--scheduler-file", place, *options]
    settings = {**os.environ, **environment, "DASK_SLAQ__EPOK": "2s"}
    with open(log, "w") as file:
        process = subprocess.Popen(start, stdout=file, stderr=file, env=settings)
    try:
        while "dask_slaq did not start" not in log.read_text():
            assert process.poll() is None
            time.sleep(0.05)
        for words in ("jobs", "owners", "policy", "audit", "pause a", "explain a"):
            told = CliRunner().invoke(command, [*words.split(), "--scheduler-file", str(place)])
            assert told.exit_code == 1
            (line,) = told.stderr.splitlines()
            assert "did not start" in line and NEAR in line
    finally:
        process.terminate()
        process.wait(PATIENCE)
    lines = log.read_text().splitlines()
    assert [NEAR in line for line in lines if "ERROR" in line] == [True]
    assert not any("Traceback" in line for line in lines)


@pytest.mark.slow
@WAYS
def test_a_strict_scheduler_with_a_misspelt_setting_does_not_start(options, environment, tmp_path):
    place = tmp_path / "scheduler.json"
    start = [*DASK, "--scheduler-file", place, *options]
    settings = {**os.environ, **environment, "DASK_SLAQ__EPOK": "2s", "DASK_SLAQ__STRICT": "true"}
    done = subprocess.run(start, capture_output=True, text=True, timeout=PATIENCE, env=settings)
    assert done.returncode == 1
    assert [NEAR in line for line in done.stderr.splitlines() if "ERROR" in line] == [True]
    assert "Traceback" not in done.stderr
    assert not place.exists()


@gen_test()
async def test_a_strict_scheduler_of_this_process_fails_with_an_error() -> None:
    strict = {**MISSPELT, **PRELOADED, "slaq.strict": True}
    with dask.config.set(strict), pytest.raises(RuntimeError, match="failed to start") as error:
        await a_scheduler()
    assert NEAR in str(error.value.__cause__)


@pytest.mark.parametrize("wrong", [MISSPELT, {"slaq.epoch": "soon"}, {"slaq.log": "/no/such/log"}])
def test_the_board_and_clients_say_why_the_plugin_did_not_start(wrong: dict[str, str]) -> None:
    pytest.importorskip("bokeh", reason="bokeh is not installed")
    (key,) = wrong

    @gen_test()
    async def check() -> None:
        from dask_slaq.scheduler.board.pages import Note

        async with contextlib.AsyncExitStack() as stack:
            with dask.config.set({**wrong, **PRELOADED}):
                scheduler = Scheduler(dashboard=True, dashboard_address="127.0.0.1:0", port=0)
                await stack.enter_async_context(scheduler)
                client = await stack.enter_async_context(
                    Client(scheduler.address, asynchronous=True, set_as_default=False)
                )
                for _ in range(2):
                    with pytest.raises(NoPlugin, match=f"did not start .*{key}"):
                        await slaq.status(client)
                    await client.restart(wait_for_workers=False)
            assert await page_of(scheduler, "/slaq")
            text = Note(scheduler).root.text
            assert "did not start" in text and key in text and 'role="alert"' in text
            # Once the configuration is right, a client may register it.
            await client.register_plugin(slaq.SlaqPlugin())
            forget_shown()
            assert "did not start" not in Note(scheduler).root.text
            assert NOT_STARTED not in scheduler.plugins
            assert (await slaq.status(client))["failed"] is None

    check()


@gen_test()
async def test_an_error_of_our_own_is_logged_with_its_traceback(monkeypatch) -> None:
    async def start(self: object, scheduler: Scheduler) -> None:
        raise ZeroDivisionError("at last")

    monkeypatch.setattr("dask_slaq.scheduler.plugin.SlaqPlugin.start", start)
    async with a_scheduler() as scheduler:
        with captured_logger("dask_slaq.scheduler.preload") as log:
            await setup(scheduler)
        assert "did not start: at last" in log.getvalue() and "Traceback" in log.getvalue()
        assert scheduler.plugins[NOT_STARTED].why == "ZeroDivisionError: at last"
