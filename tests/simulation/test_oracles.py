"""Oracles, which know the true curves and times, do better than predictions."""

import numpy as np
import pytest
from simulation.conftest import make_some_jobs

from dask_slaq.core.policies import POLICIES
from dask_slaq.simulation.study import Settings, make_engine, run
from dask_slaq.simulation.workload.runtime_laws import law

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
