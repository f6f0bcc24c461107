"""The allocation and decision benchmarks compare like with like, and give the expected keys."""

import numpy as np
import pytest
from commands import as_json

from benchmarks import allocation, decision

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
