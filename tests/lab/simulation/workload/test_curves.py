"""Files of loss curves, made curves, and those that are fit for jobs."""

import numpy as np
import pytest

from dask_slaq.lab.simulation.workload import curves


def write(tmp_path, *lines):
    path = tmp_path / "curves.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_curves_are_read_with_their_kind(tmp_path):
    path = write(
        tmp_path,
        '{"id": "a", "loss": [3, 2.5, 2.0]}',
        "",
        '{"id": "b", "algorithm": "sgd", "noisy": false, "loss": [1, 2, 1, 2]}',
        '{"id": "c", "model": "net", "loss": [4, 5, 1, 2]}',
    )
    found = curves.read_curves([path])
    assert [(c.id, c.group, c.noisy) for c in found] == [
        ("a", "a", False),
        ("b", "sgd", False),
        ("c", "net", True),
    ]


def test_made_curves_depend_on_the_seed_alone_and_are_fit_for_jobs():
    first, again, other = (curves.make_curves(seed) for seed in (5, 5, 6))
    assert all((a.loss == b.loss).all() for a, b in zip(first, again, strict=True))
    assert any((a.loss != b.loss).any() for a, b in zip(first, other, strict=True))
    assert {c.group for c in curves.fit_for_jobs(first)} == {c.group for c in first}


def test_curves_without_progress_are_not_given_to_jobs():
    flat, short = np.ones(50), np.geomspace(10, 1, 5)
    cliff = np.r_[10.0, np.linspace(1, 0.9, 49)]
    bad = [
        curves.LossCurve(str(i), "x", loss, False) for i, loss in enumerate((flat, short, cliff))
    ]
    assert curves.fit_for_jobs(bad) == []
    with pytest.raises(curves.CurveError, match="no curve is fit"):
        curves.sample([], 3, np.random.default_rng(0))


def test_a_sample_takes_every_group_before_one_twice():
    many = [curves.LossCurve(f"{g}{i}", g, np.ones(2), False) for g in "abc" for i in range(9)]
    drawn = curves.sample(many, 6, np.random.default_rng(0))
    assert sorted(c.group for c in drawn) == ["a", "a", "b", "b", "c", "c"]
    assert len({c.id for c in drawn}) == 6
