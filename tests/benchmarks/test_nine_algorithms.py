"""The curves of the nine algorithms fall, and depend on the seed alone."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import nine_algorithms
from benchmarks.nine_algorithms import ALGORITHMS, LONGEST, SHORTEST, generate, train
from dask_slaq.simulation.workload import curves

pytest.importorskip("sklearn")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("number", [0, 2])
def test_training_lowers_the_loss(algorithm, number):
    line = train(algorithm, number, seed=3)
    loss = np.array(line["loss"])
    assert line["averaging"] == ("minibatch" if number == 2 else "full-batch")
    assert SHORTEST <= len(loss) <= LONGEST and np.isfinite(loss).all()
    tenth = len(loss) // 10
    assert loss[-tenth:].mean() < loss[:tenth].mean()
    parsed = curves.parse(line)
    assert parsed.group == algorithm
    if number == 0:
        assert not parsed.noisy


def test_a_curve_is_a_function_of_seed_and_number():
    one, same, other, seed = (
        train("linear regression", *at) for at in ((0, 1), (0, 1), (1, 1), (0, 2))
    )
    assert one == same
    assert one["loss"] != other["loss"] and one["loss"] != seed["loss"]
    assert len({line["id"] for line in (one, other, seed)}) == 3


def test_the_script_writes_a_curve_file(tmp_path):
    path = tmp_path / "nine.jsonl"
    arguments = ["--out", str(path), "--count", "2", "--seed", "5"]
    result = CliRunner().invoke(nine_algorithms.main, arguments)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == list(generate(5, 2))
    assert [c.group for c in curves.read_curves([path])] == list(ALGORITHMS)[:2]
