"""Simulated clusters grow and shrink as real ones do, and their worker-hours are counted right."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from simulation.conftest import make

from dask_slaq.cli.main import slaq
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.scaling_terms import ScalingTerms
from dask_slaq.simulation.autoscale import autoscale
from dask_slaq.simulation.fluid import Adaptive, ByWorth, ElasticSimulation
from dask_slaq.simulation.fluid.elastic import ElasticCluster
from dask_slaq.simulation.settings import Settings
from dask_slaq.simulation.workload import law

SMALL = Settings(jobs=6, cores=32, seeds=1, interarrival=120.0, load=0.3)
TERMS = ScalingTerms(0.1)


def simulate(jobs, rule, *, threads=2, most=8, start_up=30.0):
    """Run jobs on a cluster that follows a rule. Returns the outcome and the workers over time."""
    seen = []

    def watched(simulation):
        seen.append((simulation.now, simulation.cluster.plan))
        return rule(simulation)

    truth, engine = law("linear", jobs), Engine("fair", epoch=3.0)
    simulation = ElasticSimulation(
        jobs, engine, truth, rule=watched, threads=threads, most=most, start_up=start_up
    )
    return simulation.run(), seen


@given(st.lists(st.tuples(st.integers(0, 9), st.floats(0, 50)), max_size=12), st.floats(0, 40.0))
def test_workers_are_paid_for_from_the_request_until_they_are_given_back(asked, start_up):
    cluster, now, expected, starts, plan = ElasticCluster(1, 2, start_up, 0.0), 0.0, 0.0, 0, 0
    for count, later in asked:
        expected += plan * later
        now += later
        cluster.come(now)
        cluster.scale(count, now)
        starts, plan = starts + max(count - plan, 0), count
        assert cluster.plan == plan >= cluster.here == cluster.cores / 2
    assert cluster.worker_seconds(now) == pytest.approx(expected, abs=1e-6)
    assert cluster.starts == starts


def test_a_job_waits_for_its_first_worker_and_none_is_kept_for_long():
    jobs = [make("a", partitions=4), make("b", arrival=2000.0, partitions=4)]
    for rule in (Adaptive(), ByWorth(TERMS, 2)):
        outcome, seen = simulate(jobs, rule)
        first = outcome.times[0][0]
        assert 30 < first < 62  # the worker, and 8 core-seconds of an iteration
        ended = outcome.times[0][-1]
        assert all(plan == 0 for at, plan in seen if ended + 180 < at < 2000)
        assert outcome.worker_seconds < 2 * (ended + 180)
        assert outcome.starts >= 2


def test_dasks_own_number_gives_back_what_it_has_asked_for_before_it_comes():
    # At the end of each iteration few tasks are left, for longer than three seconds.
    jobs = [make("a", iterations=20, work=64.0, partitions=16)]
    hasty, _ = simulate(jobs, Adaptive(wait_count=3))
    patient, _ = simulate(jobs, Adaptive(wait_count=60))
    assert patient.times[0][-1] < 0.8 * hasty.times[0][-1]
    assert 3 * patient.starts < hasty.starts


@pytest.mark.slow
def test_ways_are_compared_on_the_same_jobs():
    found = autoscale(SMALL, TERMS)
    ways = found["ways"]
    assert list(ways) == [
        *(f"fixed {n}" for n in (2, 4, 8, 16)),
        *("adaptive", "adaptive, wait-count 60", "worth"),
    ]
    sizes = [ways[f"fixed {n}"] for n in (2, 4, 8, 16)]
    for few, many in pairwise(sizes):
        assert many["completion_mean_s"] < few["completion_mean_s"]
        assert many["worker_hours"] >= few["worker_hours"] - 1e-6
    for row in ways.values():
        assert row["cost"] == pytest.approx(0.1 * row["worker_hours"])
    worth = ways["worth"]
    assert worth["completion_mean_s"] < ways["fixed 4"]["completion_mean_s"]
    assert worth["worker_hours"] < 0.6 * ways["fixed 16"]["worker_hours"]
    few = replace(SMALL, jobs=2)
    assert autoscale(few, TERMS) == autoscale(few, TERMS)
    with pytest.raises(InvalidSetting, match="no worker of 64 threads"):
        autoscale(SMALL, TERMS, threads=64)


def test_the_command_prints_what_each_way_costs():
    def run(*arguments, code=0):
        result = CliRunner().invoke(slaq, ["simulate", *arguments])
        assert result.exit_code == code, result.output
        return result.output

    small = ("--autoscale", "--jobs=2", "--cores=16", "--seeds=1", "--interarrival=60")
    small += ("--load=0.3", "--worker-threads=4", "--price=0.5", "--policies=fair")
    text = run(*small)
    assert text.startswith("2 jobs, at most 4 workers of 4 threads that compute after 30 s, policy")
    assert "worker-hours  cost" in text and "wait-count 60" in text
    found = json.loads(run(*small, "--json", "-"))
    row = found["ways"]["worth"]
    assert row["cost"] == pytest.approx(0.5 * row["worker_hours"])
    assert np.isfinite([row["t90_mean_s"], row["completion_mean_s"]]).all()
    assert "--price needs --autoscale" in run("--price", "2", code=2)
    assert "--capacity is not for --autoscale" in run("--autoscale", "--capacity=9:9", code=2)
    assert "give one policy" in run("--autoscale", "--policies=fair,max-total", code=2)
