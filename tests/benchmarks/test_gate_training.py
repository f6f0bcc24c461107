"""Training the gate reduces the cost, and writes coefficients that load."""

import io

import numpy as np
import pytest

from benchmarks import gate_training
from benchmarks.curves.gating_curves import training_curves
from benchmarks.curves.gating_lessons import Lessons, lessons
from dask_slaq.core.forecast.experts.gating import trained


@pytest.fixture(scope="module")
def some() -> Lessons:
    return lessons(training_curves(1, 10))


def test_training_helps_and_is_written_to_three_digits(some: Lessons) -> None:
    def cost(coefficients: dict[str, np.ndarray]) -> float:
        x = (some.x - coefficients["mean"]) / coefficients["deviation"]
        names = gate_training.Network._fields
        net = gate_training.Network(*(coefficients[name] for name in names))
        return gate_training._slopes(net, some._replace(x=np.clip(x, -4, 4)))[0]

    few, more = (gate_training.learn(some, epochs) for epochs in (1, 12))
    assert cost(more) < 0.95 * cost(few)
    file = io.BytesIO()
    gate_training.write(file, more)
    file.seek(0)
    assert cost(dict(np.load(file))) == pytest.approx(cost(more), rel=0.01)


def test_the_package_has_what_training_makes(some: Lessons) -> None:
    networks = [gate_training.learn(some, 1, seed) for seed in range(gate_training.NETWORKS)]
    made, packaged = gate_training.average(networks), trained()
    assert {name: array.shape for name, array in made.items()} == {
        name: array.shape for name, array in packaged.items()
    }
    for array in packaged.values():
        assert array.ravel().tolist() == [float(f"{value:.3g}") for value in array.ravel()]
