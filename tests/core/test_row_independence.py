"""A job's numbers depend neither on its row nor on other jobs of the batch, to the last bit."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import LossPredictor
from dask_slaq.core.forecast.experts.basis import product
from dask_slaq.core.policies import POLICIES

JOBS = {f"job-{k:02}": k for k in range(25)}
WORKERS = {f"w{k}": 4 for k in range(5)}


def reports_of(job: int, count: int) -> list[float]:
    """Losses of a job; of every second one with noise."""
    noise = np.random.default_rng(job).standard_normal(count) * (0.02 * (job % 2))
    return (job + (0.7 + 0.01 * job) ** np.arange(count) + noise).tolist()


def decisions(policy: str, order: list[str], epochs: int = 6) -> list[dict[str, str]]:
    """Every grant of every decision, to the last bit."""
    engine, sizes = Engine(policy), {}
    for name in order:
        engine.add_job(name, 0.0, weight=1.0 + JOBS[name] % 3)
        sizes[name] = np.random.default_rng([7, JOBS[name]])
    found = []
    for epoch in range(epochs):
        for name in order:
            losses = reports_of(JOBS[name], 3 * epochs)
            for k in range(3 * epoch, 3 * epoch + int(sizes[name].integers(1, 4))):
                seconds, at_once = sizes[name].uniform(0.01, 0.3), sizes[name].integers(1, 9)
                engine.observe_task(name, seconds, at_once)
                engine.report(name, losses[k], float(epoch))
            engine.observe_demand(name, 8 + JOBS[name])
        engine.reallocate(WORKERS, epoch + 1.0)
        found.append({name: repr(engine.grants[name]) for name in JOBS})
    return found


@pytest.mark.parametrize("policy", POLICIES)
def test_decisions_do_not_depend_on_the_order_of_the_jobs(policy):
    shuffled = [str(name) for name in np.random.default_rng(1).permutation(list(JOBS))]
    assert decisions(policy, list(JOBS)) == decisions(policy, shuffled)


def test_forecasts_do_not_depend_on_the_other_jobs():
    def forecasts(names: list[str]) -> dict[str, np.ndarray]:
        predictor = LossPredictor()
        for name in names:
            predictor.add(name)
        for k in range(30):
            for name in names:
                if k % (1 + JOBS[name] % 3) == 0:  # so that they are of different ages
                    predictor.report(name, reports_of(JOBS[name], 30)[k])
            predictor.fit()
        told = predictor.forecast(names)
        return {name: told.reduction[row] for row, name in enumerate(names)}

    together = forecasts(list(JOBS))
    for name in list(JOBS)[::4]:
        assert np.array_equal(forecasts([name])[name], together[name]), name


def test_rows_of_a_product_do_not_depend_on_the_other_rows():
    rng = np.random.default_rng(0)
    shapes = [(100, 32, 28), (77, 28, 17), (50, 2, 17), (33, 51, 32), (33, 9, 1)]
    for rows, inner, columns in shapes:
        left, right = rng.random((rows, inner)), rng.random((inner, columns))
        whole = product(left, right)
        assert whole == pytest.approx(left @ right)
        for _ in range(20):
            some = rng.permutation(rows)[: rng.integers(1, rows + 1)]
            assert np.array_equal(product(left[some], right), whole[some])
    assert product(np.empty((0, 3)), np.empty((3, 2))).shape == (0, 2)


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="kernels of x86")
@pytest.mark.parametrize("kernel", ["Haswell", "Nehalem"])
def test_no_kernel_of_openblas_makes_a_difference(kernel):
    command = [
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-k",
        "rows_of_a_product or the_other_jobs",
        __file__,
    ]
    done = subprocess.run(
        [sys.executable, *command],
        env={**os.environ, "OPENBLAS_CORETYPE": kernel},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
