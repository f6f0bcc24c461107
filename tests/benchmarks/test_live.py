"""The live benchmark runs the same jobs under every policy and on both clocks."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from commands import printed, python

from benchmarks import live
from benchmarks.live_jobs.drivers import run_emulated
from benchmarks.live_jobs.emulated import make_jobs
from dask_slaq.lab.simulation.workload.curves import make_curves

TINY = ("--jobs", "2", "--scale", "0.01", "--seeds", "1", "--workers", "4")


def made(seed=0, **shape):
    return make_jobs("staggered", make_curves(seed), seed, **{"count": 2, "scale": 0.01, **shape})


def check_live(figures, policies, n_jobs):
    assert list(figures["policies"]) == policies
    for row in figures["policies"].values():
        assert {"t90_mean_s", "t95_mean_s", "makespan_s", "bytes_moved"} <= set(row)
        assert len(row["jobs"]) == n_jobs
        assert {"name", "seed", "t90_s", "t95_s", "completion_s"} <= set(row["jobs"][0])
        assert all(job["t90_s"] <= job["completion_s"] for job in row["jobs"])
        assert 0 < row["utilization"] <= 1


def test_every_policy_runs_the_same_jobs_and_gives_the_same_digits_again():
    arguments = ("--policies", "none,max-total", *TINY, "--json", "-", "--workloads", "burst")
    found = json.loads(printed(live.main, *arguments))["burst"]
    check_live(found, ["none", "max-total", "oracle"], 2)
    iterations = [[job["iterations"] for job in row["jobs"]] for row in found["policies"].values()]
    assert all(counts == iterations[0] for counts in iterations)
    again = json.loads(printed(live.main, *arguments, "--parallel", "1", "--no-oracle"))["burst"]
    for policy, row in again["policies"].items():
        assert row == found["policies"][policy]


def test_curves_of_a_file_in_real_time_as_a_table_and_a_file(tmp_path):
    lines = [
        json.dumps({"id": f"c{i}", "loss": np.geomspace(10, 1 + i, 40).tolist()}) for i in range(3)
    ]
    curves, output = tmp_path / "curves.jsonl", tmp_path / "live.json"
    curves.write_text("\n".join(lines) + "\n")
    shown = printed(
        live.main,
        *("--policies", "none", "--workloads", "burst", "--clock", "real", *TINY),
        *("--curves", str(curves), "--json", str(output)),
    )
    assert "burst" in shown and "none" in shown
    check_live(json.loads(output.read_text())["burst"], ["none"], 2)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workloads", "calm"], "unknown workload calm: one of staggered, burst, mixed, dask-ml"),
        (["--curves", "missing.jsonl"], "missing.jsonl: cannot be read"),
        (["--policies", ","], "give at least one name"),
        (["--clock", "slow"], "'slow' is not one of 'virtual', 'real'"),
    ],
)
def test_live_says_what_is_wrong_with_its_arguments(arguments, says):
    result = CliRunner().invoke(live.main, arguments)
    assert result.exit_code != 0 and says in result.output


@pytest.mark.parametrize("policy", ["none", "fair"])
def test_both_clocks_drive_the_same_jobs(policy):
    """All compute of a job is done on both clocks, in as many iterations."""
    real, virtual = (
        run_emulated(made(), policy, seed=0, clock=clock, workers=4)
        for clock in ("real", "virtual")
    )
    assert [job.losses for job in virtual.traces] == [job.losses for job in real.traces]
    compute = sum(job.seconds.sum() for job in made())
    assert virtual.compute_seconds == pytest.approx(compute, rel=1e-6)
    assert real.compute_seconds >= 0.99 * compute
    for job in virtual.traces:
        assert job.arrival < job.times[0] <= job.times[-1] <= job.completion


def test_plain_dask_is_without_the_plugin():
    program = """
import sys
from benchmarks.live_jobs.emulated import make_jobs
from benchmarks.live_jobs.drivers import run_emulated
from dask_slaq.lab.simulation.workload.curves import make_curves
run_emulated(make_jobs("burst", make_curves(0), 0, count=2, scale=0.01), "none", seed=0, workers=2)
parts = ("scheduler", "client", "adapters")
print([part for part in parts if f"dask_slaq.{part}" in sys.modules])
"""
    assert python(program).stdout.strip() == "[]"
