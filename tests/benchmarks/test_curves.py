"""The curves of the nine algorithms fall, and depend on the seed alone."""

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.curves.__main__ import main
from benchmarks.curves.generate import ALGORITHMS, LONGEST, SHORTEST, generate, shipped, train
from benchmarks.curves.training import NETWORKS
from dask_slaq.lab.simulation.workload import curves

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


def test_the_command_writes_a_curve_file(tmp_path):
    path = tmp_path / "some.jsonl.gz"
    counts = ["--count", "2", "--wide", "0", "--networks", "1"]
    result = CliRunner().invoke(main, ["--out", str(path), "--seed", "5", *counts])
    assert result.exit_code == 0, result.output
    found, made = curves.read_curves([path]), list(generate(5, 2, networks=1))
    assert [curve.group for curve in found] == [*list(ALGORITHMS)[:2], next(iter(NETWORKS))]
    for curve, line in zip(found, made, strict=True):
        np.testing.assert_allclose(curve.loss, line["loss"], rtol=1e-5)


def test_the_curves_that_come_along_are_those_of_the_command():
    found = {curve.id: curve for curve in shipped()}
    assert len(found) >= 100
    assert {curve.group for curve in found.values()} == {*ALGORITHMS, *NETWORKS}
    for algorithm in ("linear regression", "network, wine"):
        line = train(algorithm, 0)
        np.testing.assert_allclose(found[line["id"]].loss, line["loss"], rtol=1e-4)


def test_data_of_the_shape_of_table_1():
    line = train("linear regression", 0, wide=True)
    assert line["id"] == "linear-regression-wide-0-000" and len(line["loss"]) >= 60
    assert line["loss"][-1] < line["loss"][0]
