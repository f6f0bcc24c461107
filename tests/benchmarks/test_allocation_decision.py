"""The allocation and decision benchmarks compare like with like, and give the expected keys."""

import numpy as np
import pytest
from commands import as_json

from benchmarks import allocation, decision
from benchmarks.common import slaq2017

SMALL = ((6, 48), (9, 64))


# Allocation


def test_allocation_compares_with_the_heap(monkeypatch):
    monkeypatch.setattr(allocation, "SIZES", SMALL)
    rows = as_json(allocation.main)
    assert [(row["jobs"], row["cores"]) for row in rows] == list(SMALL)
    assert all(row["identical"] is True for row in rows)
    assert all(row["seconds"] > 0 and row["heap_seconds"] > 0 for row in rows)


def test_a_different_allocation_is_seen(monkeypatch):
    monkeypatch.setattr(allocation, "hand_out", lambda *args: np.zeros(5))
    assert allocation.measure(5, 40, repetitions=1)["identical"] is False


# The paper's way


@pytest.mark.parametrize(
    "curve", [lambda k: 0.3 + 2 * 0.9**k, lambda k: 0.5 + 1 / (0.01 * k**2 + 0.1 * k + 1)]
)
def test_the_fit_finds_curves_of_its_families(curve):
    k = np.arange(1.0, 31)
    fitted = slaq2017.fit_curve(curve(k).tolist())
    assert fitted(0) == pytest.approx(curve(30), rel=1e-3)
    assert fitted(10) == pytest.approx(curve(40), rel=1e-2)


# Decision


@pytest.mark.parametrize("policy", ["fair", "max-total"])
def test_decision_says_where_its_time_goes(monkeypatch, policy):
    monkeypatch.setattr(decision, "SIZES", SMALL)
    monkeypatch.setattr(decision, "PAPER_JOBS", 6)
    rows = as_json(decision.main, "--policy", policy)
    assert [(row["jobs"], row["cores"]) for row in rows] == list(SMALL)
    for row in rows:
        assert sum(row["parts"].values()) == pytest.approx(row["seconds"])
        assert all(seconds > 0 for seconds in row["parts"].values())
    assert rows[0]["paper_seconds"] == pytest.approx(sum(rows[0]["paper_parts"].values()))
    assert rows[1]["paper_seconds"] is None
