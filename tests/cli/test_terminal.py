"""The commands that look at and steer a running scheduler, against one in another process."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner
from distributed import Client, LocalCluster

import dask_slaq as slaq
from dask_slaq.cli.main import slaq as command

HOSTILE = "red \x1b[31m[bold]"  # a job's name is users' text


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def start_scheduler(folder, *options, **environment):
    """Start a scheduler with the plugin in a process of its own; return it and its address."""
    file = folder / "scheduler.json"
    program = [
        sys.executable,
        "-m",
        "dask",
        "scheduler",
        "--no-dashboard",
        "--preload",
        "dask_slaq",
    ]
    place = ["--host", options[0] if options else "tcp://127.0.0.1", "--port", str(free_port())]
    with open(folder / "scheduler.log", "w") as log:
        process = subprocess.Popen(
            [*program, *place, "--scheduler-file", str(file), *options[1:]],
            stdout=log,
            stderr=log,
            env={**os.environ, **environment},
        )
    for _ in range(1200):
        if file.exists() and file.read_text().strip():
            return process, str(file)
        assert process.poll() is None, (folder / "scheduler.log").read_text()
        time.sleep(0.05)
    raise AssertionError("the scheduler does not start")


def end(process):
    process.terminate()
    process.wait(30)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The scheduler file of a scheduler on which ann is the only operator."""
    settings = {"DASK_SLAQ__OPERATORS": '["ann"]', "DASK_SLAQ__OWNERS": '{"bob": {"weight": 3}}'}
    process, file = start_scheduler(tmp_path_factory.mktemp("scheduler"), **settings)
    yield file
    end(process)


@pytest.fixture(scope="module")
def training(file):
    """Two jobs of bob's; the first has reported."""
    with (
        Client(scheduler_file=file, set_as_default=False) as client,
        slaq.job("a", owner="bob@lab", client=client, max_iter=9) as first,
        slaq.job(HOSTILE, owner="bob@lab", client=client),
    ):
        first.report(0.5)
        while not slaq.status(client)["jobs"]["a"]["iteration"]:
            time.sleep(0.01)
        yield client


@pytest.fixture
def run(file):
    """Run ``dask slaq`` as some owner; the scheduler is the one of `file` unless said otherwise."""

    def run(*arguments, by="ann@desk", where=("--scheduler-file", file)):
        with dask.config.set({"slaq.owner": by}):
            result = CliRunner().invoke(command, [*arguments, *where])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run


def refused(result, *words):
    """One line says what is wrong, and the exit code is 1."""
    assert result.exit_code == 1, result.output
    assert result.output.startswith("Error: ") and result.output.count("\n") == 1, result.output
    for word in words:
        assert word in result.output


def test_jobs_are_listed_with_their_owners_and_reasons(run, training):
    result = run("jobs")
    assert result.exit_code == 0
    assert "2 jobs" in result.output and "bob@lab" in result.output and "1/9" in result.output
    assert "its driver computes" in result.output
    assert "\x1b" not in result.output and r"\x1b[31m[bold]" in result.output


def test_json_is_json_without_nan(run, training):
    def no_constant(name):
        raise AssertionError(name)

    found = json.loads(run("jobs", "--json").output, parse_constant=no_constant)
    assert found["jobs"]["a"]["iteration"] == 1 and HOSTILE in found["jobs"]
    assert json.loads(run("owners", "--json").output)["bob@lab"]["jobs"] == 2
    assert json.loads(run("explain", "a", "--json").output)["job"] == "a"


def test_owners_and_explanations_are_text(run, training):
    assert run("owners").output.splitlines()[1].split()[:2] == ["bob@lab", "3"]
    assert run("explain", "a").output.startswith("a (bob@lab): ")
    assert "\x1b" not in run("explain", HOSTILE).output


def test_jobs_are_steered(run, training):
    def job():
        return slaq.status(training)["jobs"]["a"]

    assert run("set", "a", "--weight", "2", "--max-share", "4").output == (
        "a: weight 2, max_share 4\n"
    )
    assert (job()["weight"], job()["max_share"]) == (2, 4)
    assert run("set", "a", "--max-share", "inf", by="bob@lab").exit_code == 0
    assert job()["max_share"] is None
    assert "paused" in run("pause", "a").output and job()["state"] == "paused"
    assert run("resume", "a").exit_code == 0 and job()["state"] == "idle"
    assert run("stop", HOSTILE).exit_code == 0
    assert slaq.status(training)["jobs"][HOSTILE]["state"] == "stopping"


def test_the_policy_is_printed_and_changed(run):
    assert run("policy").output == "max-total\n"
    assert run("policy", "fair").exit_code == 0
    assert run("policy").output == "fair\n"
    refused(run("policy", "fairest"), "'fairest'", "max-total")
    assert run("policy", "max-total").exit_code == 0


@pytest.mark.parametrize("what", ["pause", "resume", "stop", "set"])
def test_only_owner_and_operators_may(run, training, what):
    settings = ["--weight", "5"] if what == "set" else []
    refused(run(what, "a", *settings, by="eve@desk"), "'eve@desk' may not", "bob@lab", "ann")
    refused(run("policy", "fair", by="eve@desk"), "operators")


@pytest.mark.parametrize("what", ["explain", "pause", "resume", "stop", "set"])
def test_an_unknown_job_is_named_with_the_known_ones(run, training, what):
    settings = ["--weight", "5"] if what == "set" else []
    refused(run(what, "b\x1b", *settings), r"'b\x1b'", "'a'")


def test_bad_settings_change_nothing(run, training):
    refused(run("set", "a", "--weight", "-1"), "weight", "-1")
    refused(run("set", "a", "--min-share", "nan"), "min_share")
    assert run("set", "a").exit_code == 2


def test_no_scheduler(run, tmp_path, monkeypatch):
    nobody = f"tcp://127.0.0.1:{free_port()}"
    refused(run("jobs", where=("--scheduler", nobody, "--timeout", "0.5")), nobody, "0.5 s")
    refused(run("jobs", where=()), "--scheduler ADDRESS", "DASK_SCHEDULER_ADDRESS")
    refused(run("jobs", where=("--scheduler", "foo://x:1")), "foo")
    refused(run("jobs", where=("--scheduler", "nonsense")), "nonsense")
    refused(run("jobs", where=("--scheduler", nobody.replace("tcp", "tls"))), "TLS")
    refused(run("jobs", where=("--scheduler-file", str(tmp_path / "none"))), "none")
    (tmp_path / "empty").write_text("{}")
    refused(run("jobs", where=("--scheduler-file", str(tmp_path / "empty"))), "empty")
    assert run("jobs", "--scheduler", nobody).exit_code == 2  # and a file


def test_what_is_not_a_scheduler_is_not_waited_for(run):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        refused(run("jobs", where=("--scheduler", address, "--timeout", "0.5")), address)


def test_no_plugin(run):
    cluster = LocalCluster(n_workers=0, processes=False, dashboard_address=":0")
    with cluster, dask.config.set({"scheduler-address": cluster.scheduler_address}):
        for arguments in (("jobs",), ("owners",), ("explain", "a"), ("pause", "a"), ("policy",)):
            refused(run(*arguments, where=()), "does not run SlaqPlugin")


@pytest.mark.parametrize("name", sorted(command.commands))
def test_every_help_has_a_sentence(name):
    result = CliRunner().invoke(command, [name, "--help"])
    assert result.exit_code == 0
    assert "\n\n  " in result.output


def test_top_needs_a_terminal(run, training):
    pytest.importorskip("textual")
    refused(run("top"), "dask slaq jobs")


def test_top_says_how_to_install_what_it_needs(run, monkeypatch):
    monkeypatch.delitem(sys.modules, "dask_slaq.cli.top.app", raising=False)
    monkeypatch.setitem(sys.modules, "textual.app", None)
    monkeypatch.setitem(sys.modules, "textual", None)
    refused(run("top"), "pip install 'dask-slaq[top]'")


def test_as_a_program_by_the_environment(file, training):
    address = json.loads(Path(file).read_text())["address"]
    program = [sys.executable, "-m", "dask", "slaq"]
    environment = {**os.environ, "DASK_SCHEDULER_ADDRESS": address}
    result = subprocess.run(
        [*program, "explain", "b"], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("Error: no job named 'b'") and result.stderr.count("\n") == 1


def test_tls_by_dask_s_own_configuration(run, tmp_path):
    if shutil.which("openssl") is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    request = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(["openssl", *request, *files], check=True, capture_output=True)
    settings = {
        "distributed.comm.tls.ca-file": str(certificate),
        "distributed.comm.tls.client.cert": str(certificate),
        "distributed.comm.tls.client.key": str(key),
    }
    options = ["--tls-ca-file", "--tls-cert", "--tls-key"]
    paths = [str(certificate), str(certificate), str(key)]
    pairs = [part for pair in zip(options, paths, strict=True) for part in pair]
    process, file = start_scheduler(tmp_path, "tls://127.0.0.1", *pairs)
    try:
        with dask.config.set(settings):
            result = run("policy", where=("--scheduler-file", file))
            assert (result.exit_code, result.output) == (0, "max-total\n")
        refused(run("policy", where=("--scheduler-file", file)), "TLS")
    finally:
        end(process)


# The live table


def top(file, scenario, by="ann@desk", **options):
    """Run ``scenario(application, pilot)`` in the live table, without a terminal."""
    pytest.importorskip("textual")
    from dask_slaq.cli.connection import Where
    from dask_slaq.cli.top.app import Top

    async def run():
        app = Top(Where(scheduler_file=file), interval=60, **options)
        async with app.run_test(size=(120, 30)) as pilot:
            while app.status is None:
                await pilot.pause(0.02)
            await scenario(app, pilot)

    with dask.config.set({"slaq.owner": by}):
        asyncio.run(run())


def shown(app, name):
    return str(app.query_one(name).render())


async def until(pilot, condition):
    while not condition():
        await pilot.pause(0.02)


def test_top_sorts_and_keeps_the_chosen_job(file, training):
    async def scenario(app, pilot):
        table = app.query_one("#jobs")
        assert table.row_count == 2 and app.job == "a"
        await pilot.press("r")
        assert table.cursor_row == 1 and app.job == "a"  # it moved, and is chosen still
        for _ in range(3):
            await pilot.press("greater_than_sign")
        assert [c.label.plain for c in table.ordered_columns][3] == "iteration ▼"
        assert [key.value for key in table.rows] == ["a", HOSTILE]
        await pilot.press("less_than_sign")
        assert app.sorted_by == 2

    top(file, scenario)


def test_top_explains_pauses_and_stops_after_a_question(file, training):
    def job():
        return slaq.status(training)["jobs"]["a"]["state"]

    async def scenario(app, pilot):
        await pilot.press("e")
        await until(pilot, lambda: "a (bob@lab)" in shown(app, "#explanation"))
        await pilot.press("p")
        await until(pilot, lambda: app.status["jobs"]["a"]["state"] == "paused")
        assert "a is paused" in shown(app, "#message")
        await pilot.press("p")
        await until(pilot, lambda: app.status["jobs"]["a"]["state"] != "paused")
        await pilot.press("s", "n")
        await pilot.press("o", "s", "o")  # no job is seen, and none is stopped
        await app.refresh_status()
        assert app.status["jobs"]["a"]["state"] == "idle"
        await pilot.press("s", "y")
        await until(pilot, lambda: app.status["jobs"]["a"]["state"] == "stopping")

    top(file, scenario)


def test_top_shows_refusals_and_goes_on(file, training):
    async def scenario(app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: "may not" in shown(app, "#message"))
        await app.refresh_status()
        assert "may not" in shown(app, "#message")
        app.address, before = f"tcp://127.0.0.1:{free_port()}", app.address
        app.where = type(app.where)(timeout=0.3)
        await app._disconnect()
        await app.refresh_status()
        assert "no scheduler answers" in shown(app, "#message")
        app.address, app.where = before, type(app.where)()
        await app.refresh_status()
        assert shown(app, "#message") == "" and app.query_one("#jobs").row_count == 2

    top(file, scenario, by="eve@desk")


def test_top_read_only_has_no_keys_that_steer(file, training):
    async def scenario(app, pilot):
        await pilot.press("p", "s", "y")
        await app.refresh_status()
        assert "paused" not in {job["state"] for job in app.status["jobs"].values()}
        assert not app.query_one("#message").display

    top(file, scenario, read_only=True)
