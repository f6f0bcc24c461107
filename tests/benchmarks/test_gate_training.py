"""Training the gate uses true gradients, reduces the cost, and writes coefficients that load."""

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


def test_slopes_are_those_of_the_cost(some: Lessons) -> None:
    some = some.of(slice(0, 400, 7))
    some = some._replace(x=np.clip(some.x, -4, 4))
    rng = np.random.default_rng(0)
    net = gate_training._start(rng, some.x.shape[1], 2 * some.level.shape[1] + 3)
    _, slopes = gate_training._slopes(net, some)
    for array, slope in zip(net, slopes, strict=True):
        place = tuple(int(rng.integers(n)) for n in array.shape)
        decay = gate_training.DECAY * array[place] if array.ndim == 2 else 0.0
        costs = []
        for step in (1e-5, -2e-5):  # to both sides: the cost has kinks
            array[place] += step
            costs.append(gate_training._slopes(net, some)[0])
        array[place] += 1e-5
        found = (costs[0] - costs[1]) / 2e-5
        small = 1e-3 * np.abs(slope).max()
        assert found == pytest.approx(slope[place] - decay, rel=1e-2, abs=small)
