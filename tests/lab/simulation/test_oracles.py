"""Oracles, which know the true curves and times, do better than predictions."""

import numpy as np
import pytest
from lab.simulation.conftest import make_some_jobs

from dask_slaq.core.policies import POLICIES
from dask_slaq.lab.simulation.oracles import OraclePredictor
from dask_slaq.lab.simulation.study import Settings, make_engine, run
from dask_slaq.lab.simulation.workload.simulated_jobs import law

SETTINGS = Settings(cores=64, seeds=1)


def test_oracles_beat_predictions_on_average(some_jobs):
    t90 = {
        name: np.mean(run(name, 0, some_jobs, SETTINGS).time_to(0.9))
        for name in ("fair", "max-total", "oracle")
    }
    # Predictions are near the truth, and a greedy choice may be lucky: oracles may lose a little.
    assert t90["oracle"] < 1.05 * t90["max-total"] < t90["fair"]


def test_the_oracle_of_a_law_holds_under_it():
    settings = Settings(cores=64, seeds=1, scaling="sublinear")
    lists = [make_some_jobs(seed) for seed in range(2)]
    t90 = {
        name: np.mean([run(name, i, jobs, settings).time_to(0.9) for i, jobs in enumerate(lists)])
        for name in ("max-total", "oracle")
    }
    assert t90["oracle"] < t90["max-total"]


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_its_oracle(some_jobs, policy):
    found = run(f"oracle:{policy}", 0, some_jobs[:4], SETTINGS)
    assert np.isfinite(found.completion).all()


def test_an_oracle_of_fair_is_fair(some_jobs):
    one, other = (run(name, 0, some_jobs, SETTINGS) for name in ("fair", "oracle:fair"))
    assert one.completion == pytest.approx(other.completion)


def test_oracles_use_the_engine_of_the_policy(some_jobs):
    truth = law("linear", some_jobs)
    engine = make_engine("oracle:max-min", some_jobs, truth, SETTINGS)
    assert engine.policy.name == "max-min" and engine.floor == SETTINGS.floor


@pytest.mark.parametrize("reports", [0, 1, 4, 100])
def test_the_oracle_knows_what_is_still_to_fall(reports):
    loss = np.array([9.0, 7.0, 8.0, 4.0, 3.5, 3.0])
    oracle = OraclePredictor({"a": loss, "b": loss + 1})
    oracle.add("a")
    for k in range(reports):
        oracle.report("a", loss[min(k, 5)])
    assert oracle.fit() == min(reports, 1) and oracle.fit() == 0
    seen = oracle.forecast(["a"])
    now = {0: 9.0, 1: 9.0, 4: 4.0, 100: 3.0}[reports]
    assert seen.level == [now] and seen.start == [9.0] and seen.n_reports == [reports]
    assert seen.remaining == [now - 3.0] == seen.reduction[:, -1]
    slope = np.diff(seen.reduction[0]) / np.diff(seen.horizons)
    assert seen.reduction[0, 0] == 0 and (slope >= 0).all() and (np.diff(slope) < 1e-9).all()
    oracle.remove("a")
    assert oracle.forecast([]).reduction.shape == (0, len(seen.horizons))
