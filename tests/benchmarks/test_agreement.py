"""The simulator beside the cluster: what is compared, and what is said of it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import agreement, jobs, live
from dask_slaq.simulation.curves import make_curves

NOTHING = agreement.Overhead(0.0, 0.0)


def made(seed):
    return jobs.burst(make_curves(seed), seed, count=3, scale=0.05)


def figures(policy, seeds, factor=1.0):
    """What a cluster would have measured on which all takes `factor` times as long."""
    rows = [
        {"seed": seed, "t90_s": factor * t}
        for seed in seeds
        for t in agreement.simulate(made(seed), policy, 4, 1.0, NOTHING).time_to(0.9).tolist()
    ]
    mean = float(np.mean([row["t90_s"] for row in rows]))
    return {"t90_mean_s": mean, "jobs": rows, "late_s": 0.02 * (factor > 1)}


def test_agreement_is_by_the_mean_over_seeds():
    live_ones = {"fair": figures("fair", (1, 2)), "max-total": figures("max-total", (1, 2), 1.25)}
    compared = agreement.compare(
        {"none": {}, **live_ones}, made, (1, 2), workers=4, epoch=1.0, overhead=NOTHING
    )
    found = compared["policies"]
    assert list(found) == ["fair", "max-total"]
    assert found["fair"]["agrees"] and found["fair"]["difference"] == pytest.approx(0.0)
    assert not found["max-total"]["agrees"]
    assert found["max-total"]["difference"] == pytest.approx(-0.2)
    assert found["max-total"]["seeds"]["2"]["difference"] == pytest.approx(-0.2)
    fair, most = agreement.agreement_table("burst", compared).splitlines()[2:]
    assert fair.endswith("agrees") and "busy" not in fair
    assert "differs by more than 15%, but the machine was busy" in most


def test_overhead_makes_iterations_longer():
    slower = agreement.simulate(made(1), "fair", 4, 1.0, agreement.Overhead(0.2, 0.1))
    faster = agreement.simulate(made(1), "fair", 4, 1.0, NOTHING)
    assert slower.completion.mean() > faster.completion.mean()


def test_slow_motion_is_the_same_run():
    slow = jobs.burst(make_curves(1), 1, count=3, scale=0.05, slow=3.0)
    a = agreement.simulate(made(1), "fair", 4, 1.0, NOTHING).completion
    b = agreement.simulate(slow, "fair", 4, 3.0, NOTHING).completion
    assert b == pytest.approx(3.0 * a, rel=0.05)  # tasks are not sent ahead by three times as much


def test_live_runs_are_simulated(tmp_path):
    output = tmp_path / "live.json"
    arguments = "--policies none,fair --workloads burst --quick --jobs 2 --scale 0.02 --workers 4"
    shown = CliRunner().invoke(live.main, [*arguments.split(), "--simulate", "--json", str(output)])
    assert shown.exit_code == 0, shown.output
    found = json.loads(output.read_text())["burst"]
    assert set(found["policies"]) == {"none", "fair"}
    row = found["simulator"]["policies"]["fair"]
    assert row["live_s"] == pytest.approx(found["policies"]["fair"]["t90_mean_s"])
    assert row["difference"] == pytest.approx(row["simulated_s"] / row["live_s"] - 1.0)
    assert found["simulator"]["overhead"]["iteration"] >= 0
    assert "burst: t90 simulated and live" in shown.output
