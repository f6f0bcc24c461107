"""Bounds of the memory of past runs, and kinds, by which they are alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.run_history import (
    N_BINS,
    Kind,
    PastRun,
    PastRuns,
    Traces,
    check_kind,
    distance,
    expected_time,
    kernel,
    kind_of_name,
    read_kind,
    runs,
)
from dask_slaq.core.run_history.curves import EDGES

FEATURES = st.dictionaries(st.sampled_from("abc"), st.floats(-9, 9), max_size=3)
kinds = FEATURES.map(lambda found: Kind("k", tuple(sorted(found.items()))))


def run(number=0, name="k", feature=0.0, **fields):
    kind = Kind(name, (("a", feature),))
    return PastRun(f"{number}", kind, np.array([1, 2]), np.array([1.0, 0.5]), 2, **fields)


def test_memory_is_bounded_and_the_oldest_go(monkeypatch):
    monkeypatch.setattr(runs, "MOST_RUNS_PER_KIND", 3)
    monkeypatch.setattr(runs, "MOST_KINDS", 2)
    memory = PastRuns()
    for number in range(5):
        memory.add(run(number))
    assert [one.job for one in memory] == ["2", "3", "4"]
    memory.add(run(5, "other"))
    memory.add(run(6))
    memory.add(run(7, "third"))  # "other" was added to least recently
    assert {one.kind.name for one in memory} == {"k", "third"}
    assert len(memory) == len(list(memory)) == 4


def test_the_nearest_runs_come_first_and_of_these_the_newest():
    memory = PastRuns()
    for number, feature in enumerate((3.0, 1.0, 2.0, 1.0)):
        memory.add(run(number, feature=feature, ended=float(number)))
    found = memory.like(Kind("k", (("a", 1.0),)))[:3]
    assert [(one.job, apart) for one, apart in found] == [("3", 0.0), ("1", 0.0), ("2", 1.0)]
    assert memory.like(Kind("another")) == []


def test_a_program_that_fails_again_and_again_does_not_push_out_its_successes():
    memory = PastRuns()
    memory.add(run(0, feature=1.0))
    for number in range(1, 2 * runs.MOST_RUNS_PER_KIND):
        memory.add(run(number, outcome="failed", ended=float(number)))
    assert len(memory) == runs.MOST_RUNS_PER_KIND
    found = memory.like(Kind("k", (("a", 0.0),)))
    assert len(found) == runs.MOST_LIKE_RUNS
    assert [one.outcome for one, _ in found] == ["failed"] * (runs.MOST_LIKE_RUNS - 1) + ["done"]
    assert [apart for _, apart in found] == sorted(apart for _, apart in found)


@given(kinds, kinds, kinds)
def test_distance_is_a_metric_where_kinds_have_the_same_features(one, other, third):
    assert distance(one, one) == 0.0
    assert distance(one, other) == distance(other, one)
    assert distance(one, Kind("another", one.features)) == np.inf
    if {*dict(one.features)} == {*dict(other.features)} == {*dict(third.features)}:
        assert distance(one, third) <= distance(one, other) + distance(other, third) + 1e-9


@given(st.lists(st.floats(0, 1e6), max_size=8))
def test_nearer_runs_weigh_more(apart):
    weight = kernel(sorted(apart))
    assert not apart or weight.sum() == pytest.approx(1.0)
    assert (np.diff(weight) <= 1e-12).all() and np.isfinite(weight).all()


@given(st.lists(st.floats(-1e300, 1e300), min_size=1, max_size=300), st.integers(1, 50))
def test_curves_are_bounded_and_do_not_depend_on_batches(losses, size):
    """The first reports are kept, later ones as means, whatever comes at once."""
    traces = Traces()
    rows = [traces.acquire(), traces.acquire()]
    for start in range(0, len(losses), size):
        some = np.array(losses[start : start + size])
        traces.append(np.full(len(some), rows[0]), some)
    for loss in losses:
        traces.append(np.array([rows[1]]), np.array([loss]))
    (iteration, mean), (_, other) = map(traces.curve, rows)
    assert np.array_equal(mean, other)
    assert len(mean) <= N_BINS and (np.diff(iteration) > 0).all()
    assert mean[:24].tolist() == losses[:24][: len(mean)]
    assert np.isfinite(mean).all() and iteration[-1] <= len(losses)
    if len(losses) > 40:
        at = int(np.searchsorted(EDGES, 40))
        part = losses[EDGES[at - 1] : min(EDGES[at], len(losses))]
        assert mean[at] == pytest.approx(np.mean(np.array(part) / 2) * 2, rel=1e-9, abs=1e288)


def test_running_times_are_means_over_like_runs():
    law = (0.1, 2.0, 0.0, 0.01)
    like = [(run(work=1.0, tasks=4.0), 0.0), (run(work=4.0, tasks=16.0, law=law), 0.0)]
    found = expected_time(like)
    assert found.work == pytest.approx(2.0) and found.width == pytest.approx(8.0)
    assert found.law == law
    assert expected_time([(run(), 0.0)]).work == 0.0
    assert expected_time([]).law is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("logreg-C0.1-3", "logreg"),
        ("logreg-C10-4", "logreg"),
        ("lbfgs-16", "lbfgs"),
        ("l-bfgs-8", "l-bfgs"),
        ("resnet50 lr=0.1 seed=3", "resnet"),
        ("kmeans k=8", "kmeans"),
        ("run-3-logreg", "run-logreg"),
        ("svm_C1_fold_2", "svm_fold"),
        ("solver=admm-2", "solver=admm"),
        ("lr=1e-3-net", "net"),
        ("café-12", "café"),
        ("plain", "plain"),
        ("123", "123"),
        ("x1", "x1"),
        ("--", "--"),
    ],
)
def test_the_name_without_its_parameters_is_the_last_resort(name, kind):
    assert kind_of_name(name) == Kind(kind)


@given(st.text(max_size=80).filter(str.isprintable))
def test_any_name_has_a_kind(name):
    kind = kind_of_name(name)
    if kind.name != name:
        assert read_kind(kind.name) == kind
        assert not any(c.isdecimal() for c in kind.name)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=64).filter(lambda n: n != "name" and n.isprintable()),
        st.one_of(st.floats(0, 1e300), st.integers(0, 10**9)),
        max_size=8,
    )
)
def test_what_is_sent_reads_as_what_was_given(numbers):
    given = {"name": "mine", **numbers}
    assert read_kind(check_kind(given)) == read_kind(given)


def test_numbers_are_compared_by_order_of_magnitude():
    kind = read_kind({"name": "net", "rows": np.int64(1000), "lr": np.float32(0.5), "drop": 0})
    assert [name for name, _ in kind.features] == ["drop", "lr", "rows"]
    assert kind.features[2] == ("rows", 3.0) and kind.features[0] == ("drop", -12.0)
    assert read_kind("net") == Kind("net") and read_kind(None) is None
    assert check_kind({"name": "net", "lr": np.float32(0.5)}) == {"name": "net", "lr": 0.5}
    assert check_kind("net") == {"name": "net"} and check_kind(None) is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("", "1 to 256 printable characters"),
        ("x" * 257, "1 to 256 printable characters"),
        (3, "a name, or a mapping"),
        ({"lr": 0.1}, "must have a name"),
        ({"name": 3}, "must have a name"),
        ({"name": "a", "lr": -1}, "'lr' of a kind must be a finite number >= 0, not -1"),
        ({"name": "a", "lr": float("inf")}, "finite number"),
        ({"name": "a", "lr": True}, "finite number"),
        ({"name": "a", "lr": "fast"}, "finite number"),
        ({"name": "a", 3: 1.0}, "1 to 64 characters"),
        ({"name": "a", "": 1.0}, "1 to 64 characters"),
        ({"name": "a", **{f"x{n}": 1 for n in range(40)}}, "at most 31 numbers, not 40"),
    ],
    ids=str,
)
def test_what_is_no_kind_is_refused(kind, words):
    for check in (read_kind, check_kind):
        with pytest.raises(InvalidSetting, match=words):
            check(kind)
