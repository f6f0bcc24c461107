"""The commands that look at and steer a running scheduler, against one in another process."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import dask
import pytest
from click.testing import CliRunner
from distributed import LocalCluster
from scheduler_process import end, free_port, start_scheduler

import dask_slaq as slaq
from dask_slaq.cli.main import COMMANDS
from dask_slaq.cli.main import slaq as command
from dask_slaq.cli.status_tables import COLUMNS, cell

HOSTILE = "red <b>[bold]"  # as in conftest.py


@pytest.fixture
def run(on_scheduler):
    """Run ``dask slaq``; see `on_scheduler`."""
    return on_scheduler


def refused(result, *words):
    """One line says what is wrong, and the exit code is 1."""
    assert result.exit_code == 1, result.output
    assert result.output.startswith("Error: ") and result.output.count("\n") == 1, result.output
    for word in words:
        assert word in result.output


def test_an_end_that_was_expected_before_now_is_no_negative_time():
    ends = {"low": -0.1, "expected": 4.0, "high": 90.0}
    (column,) = (column for column in COLUMNS if column.heading == "ends in")
    assert cell(column, {"ends": ends}) == "4 s (0.0 s to 1.5 min)"
    assert cell(column, {"ends": {**ends, "of": "submitted"}}) == "so far 4 s (0.0 s to 1.5 min)"
    assert cell(column, {"ends": dict.fromkeys(ends)}) == "-"


def test_jobs_are_listed_with_their_owners_and_reasons(run, training):
    result = run("jobs")
    assert result.exit_code == 0
    assert "2 jobs" in result.output and "bob@lab" in result.output and "1/9" in result.output
    assert "its driver computes" in result.output
    assert HOSTILE in result.output


def test_json_is_json_without_nan(run, training):
    def no_constant(name):
        raise AssertionError(name)

    found = json.loads(run("jobs", "--json").output, parse_constant=no_constant)
    assert found["jobs"]["a"]["iteration"] == 1 and HOSTILE in found["jobs"]
    assert json.loads(run("owners", "--json").output)["bob@lab"]["jobs"] == 2
    assert json.loads(run("explain", "a", "--json").output)["job"] == "a"


def test_operators_change_owners_and_limits(run, training):
    result = run("owners", "set", "eve", "--max-threads", "8", "--max-jobs", "2")
    assert result.output == "eve: max-threads 8, max-jobs 2, until the scheduler ends\n"
    assert json.loads(run("owners", "--json").output)["eve"]["max_jobs"] == 2
    refused(run("owners", "set", "eve", "--weight", "3", by="bob@lab"), "only operators may")
    refused(run("owners", "set", "eve", "--max-jobs", "0.5"), "max-jobs", "'eve'", "0.5")
    result = run("owners", "set", "eve", "--core-hours", "3000", "--period", "7d", "--over", "wait")
    words = "eve: core-hours 3000, period 7d, over wait, until the scheduler ends\n"
    assert result.output == words
    assert json.loads(run("owners", "--json").output)["eve"]["core_hours"] == 3000
    assert run("owners").output.splitlines()[0].split()[-4:-1] == ["core-h", "left", "finished"]
    line = "eve has used 0 of 3000 core-hours of the last 7 days: 3000 are left"
    assert run("usage").output.splitlines()[-2] == line
    assert "max-resources GPU=4," in run("owners", "set", "eve", "--max-resources", "GPU=4").output
    assert json.loads(run("owners", "--json").output)["eve"]["max_resources"] == {"GPU": 4}
    assert "max-resources none," in run("owners", "set", "eve", "--max-resources", "none").output
    refused(run("owners", "set", "eve", "--max-resources", "GPU=-1"), "amounts > 0")
    assert run("owners", "set", "eve", "--max-resources", "GPU").exit_code == 2
    refused(run("owners", "set", "eve", "--period", "3 h"), "period of owner 'eve'", "'3 h'")
    assert run("owners", "set", "eve").exit_code == 2
    assert run("limits").output == "no label has a limit (slaq.limits)\n"
    refused(run("limits", "set", "database", "4", by="bob@lab"), "only operators may")
    assert run("limits", "set", "database", "4").exit_code == 0
    assert run("limits").output.splitlines()[1].split() == ["database", "4", "0", "0"]
    refused(run("limits", "set", "database", "0"), "whole and from 1")
    refused(run("limits", "set", "data\x1b[31m", "4"), "a name in one line")
    assert run("limits", "set", "database", "some").exit_code == 2
    assert "database: no limit," in run("limits", "set", "database", "none").output
    refused(run("limits", "set", "database", "none"), "'database' has no limit")
    assert "set owner 'eve' max_threads=8" in run("audit").output
    assert "limit 'database' to 4" in run("audit").output


def test_threads_are_reserved_listed_and_removed(run, training):
    assert run("reserve").output == "nothing is reserved\n"
    made = run("reserve", "eve", "16", "--to", "23:59").output
    assert made.startswith("reservation 1: eve 16 threads from 2")
    assert "16 threads are reserved in that time, and the cluster has" in made
    assert run("reserve").output.splitlines()[1].split()[:3] == ["1", "eve", "16"]
    assert json.loads(run("reserve", "--json").output)[0]["now"]
    refused(run("reserve", "eve", "1", "--to", "1:00", by="bob@lab"), "only operators may")
    refused(run("reserve", "eve", "0", "--to", "1:00"), "threads must be a number > 0")
    refused(run("reserve", "eve", "1", "--to", "soon"), "to must be a time such as 18:00")
    assert (
        run("reserve", "eve", "1").exit_code == run("reserve", "e", "--remove", "1").exit_code == 2
    )
    assert run("reserve", "--remove", "1").output == "reservation 1 is removed\n"
    refused(run("reserve", "--remove", "1"), "there is no reservation 1; there are: none")
    assert "remove reservation 1" in run("audit").output


def test_owners_and_explanations_are_text(run, training):
    assert run("owners").output.splitlines()[1].split()[:2] == ["bob@lab", "3"]
    assert run("explain", "a").output.startswith("a (bob@lab): ")


def test_jobs_are_steered(run, training):
    def job():
        return slaq.status(training)["jobs"]["a"]

    assert run("change", "a", "--weight", "2", "--max-share", "4").output == (
        "a: weight 2, max_share 4\n"
    )
    assert (job()["weight"], job()["max_share"]) == (2, 4)
    assert run("change", "a", "--max-share", "inf", by="bob@lab").exit_code == 0
    assert run("change", "a", "--max-slowdown", "3").output == "a: max_slowdown 3\n"
    refused(run("change", "a", "--max-slowdown", "0.5"), "max_slowdown must be a factor >= 1")
    assert job()["max_share"] is None
    assert "paused" in run("pause", "a").output and job()["state"] == "paused"
    assert run("unpause", "a").exit_code == 0 and job()["state"] == "idle"
    assert run("stop", HOSTILE).exit_code == 0
    assert slaq.status(training)["jobs"][HOSTILE]["state"] == "stopping"


def test_the_policy_is_printed_and_changed(run):
    assert run("policy").output == "first-to-target\n"
    assert run("policy", "fair").exit_code == 0
    assert run("policy").output == "fair\n"
    refused(run("policy", "fairest"), "'fairest'", "max-total")
    assert run("policy", "max-total").exit_code == 0


@pytest.mark.parametrize("what", ["pause", "unpause", "stop", "change"])
def test_only_owner_and_operators_may(run, training, what):
    settings = ["--weight", "5"] if what == "change" else []
    refused(run(what, "a", *settings, by="eve@desk"), "'eve@desk' may not", "bob@lab", "ann")
    refused(run("policy", "fair", by="eve@desk"), "operators")


@pytest.mark.parametrize("what", ["explain", "pause", "unpause", "stop", "change"])
def test_an_unknown_job_is_named_with_the_known_ones(run, training, what):
    settings = ["--weight", "5"] if what == "change" else []
    refused(run(what, "b\x1b", *settings), r"'b\x1b'", "'a'")


def test_bad_settings_change_nothing(run, training):
    refused(run("change", "a", "--weight", "-1"), "weight", "-1")
    refused(run("change", "a", "--min-share", "nan"), "min_share")
    assert run("change", "a").exit_code == 2


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


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_help_has_a_sentence(name):
    result = CliRunner().invoke(command, [name, "--help"])
    assert result.exit_code == 0
    assert "\n\n  " in result.output


def test_what_a_newcomer_types(run, training):
    assert run("status").stdout.splitlines()[0] == run("jobs").stdout.splitlines()[0]
    result = CliRunner().invoke(command, ["jbos"])
    assert result.exit_code == 2 and "Did you mean 'jobs'?" in result.output
    assert "Did you mean" not in CliRunner().invoke(command, ["qqq"]).output
    assert "Did you mean 'set'?" in CliRunner().invoke(command, ["owners", "sett"]).output
    shown = CliRunner().invoke(command, ["--help"]).output
    assert "dask slaq jobs --scheduler" in shown and "DASK_SCHEDULER_ADDRESS" in shown


@pytest.mark.slow
def test_as_a_program_by_the_environment(file, training):
    address = json.loads(Path(file).read_text())["address"]
    program = [sys.executable, "-m", "dask", "slaq"]
    environment = {**os.environ, "DASK_SCHEDULER_ADDRESS": address}
    result = subprocess.run(
        [*program, "explain", "b"], env=environment, capture_output=True, text=True
    )
    assert result.returncode == 1 and result.stdout == ""
    assert result.stderr.startswith("Error: no job named 'b'") and result.stderr.count("\n") == 1


@pytest.mark.slow
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
            assert (result.exit_code, result.output) == (0, "first-to-target\n")
        refused(run("policy", where=("--scheduler-file", file)), "TLS")
    finally:
        end(process)


@pytest.mark.parametrize(
    ("eta", "text"),
    [
        (None, "unknown"),
        ([30.0, 90.0, 7200.0], "1.5 min (30 s to 2.0 h)"),
        ([30.0, 40.0, None], "40 s (30 s to ?)"),
        ([30.0, None, None], "over 30 s"),
        ([None, None, None], "not in sight"),
        ([0.0, 0.0, 0.0], "reached"),
    ],
)
def test_the_time_to_the_target_has_its_band(eta, text):
    column = next(c for c in COLUMNS if c.heading == "to target")
    assert cell(column, {"target": 0.1, "eta": eta}) == text
    assert cell(column, {"target": None, "eta": None}) == "-"


def test_what_ended_and_what_was_changed_is_told(run, training):
    with slaq.job("over", owner="bob@lab", client=training) as job:
        job.report(0.25)
        assert run("change", "over", "--weight", "2").exit_code == 0
        refused(run("stop", "over", by="eve@desk"), "eve@desk", "operators")
    heading, *rows, _, period = run("jobs", "--ended").output.splitlines()
    assert period.startswith("jobs that ended since the scheduler's start at 20")
    assert heading.split()[:3] == ["job", "owner", "outcome"]
    (row,) = (row.split() for row in rows if row.startswith("over"))
    assert row[1:5] == ["bob@lab", "done", "1", "0.25"]
    assert json.loads(run("jobs", "--ended", "--json").output)[-1]["job"] == "over"
    told = run("audit").output.splitlines()
    assert "asked to set job 'over' weight=2.0: done" in told[-2]
    assert "eve@desk" in told[-1] and "refused" in told[-1]
    assert json.loads(run("audit", "--json").output)[-1]["by"] == "eve@desk"
