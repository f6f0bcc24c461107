"""Kinds as users state them, and as names of jobs tell them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.memory import Kind, check_kind, kind_of_name, read_kind


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
