"""Parameters are the plain arguments of a call, and what the scheduler keeps of them is bounded."""

import functools
from dataclasses import dataclass
from enum import Enum

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.trials import arguments, as_parameters, bounded


@dataclass
class Config:
    lr: float
    depth: int = 3


class Kind(Enum):
    RELU = "relu"


def train(params, epochs=10, *, data=None, **others):
    pass


def parameters(function, *args, **kwargs):
    return as_parameters(arguments(function, args, kwargs))


def test_the_only_mapping_or_dataclass_is_taken_apart():
    assert parameters(train, {"lr": 0.1}, 5) == {"lr": 0.1, "epochs": 5}
    assert parameters(train, Config(0.1)) == {"lr": 0.1, "depth": 3}
    assert parameters(train, dict.fromkeys(range(1000), 1)) == {}  # data
    assert parameters(train, {"lr": 1}, data={"rows": 2}) == {"params.lr": 1, "data.rows": 2}


def test_others_are_by_name():
    assert parameters(train, 0.1, seed=3) == {"params": 0.1, "seed": 3}
    assert parameters(functools.partial(train, epochs=2), 0.5) == {"params": 0.5, "epochs": 2}
    assert parameters(dict.fromkeys, [1]) != {} and parameters(max, 1, 2) == {"0": 1, "1": 2}


def test_only_plain_values_are_parameters():
    given = {
        "model": {"layers": [8, 8], "act": Kind.RELU, "fit": train},
        "array": np.zeros(3),
        "number": np.float32(0.5),
        "flag": np.bool_(True),
        "none": None,
        "kind": Config,
        "object": object(),
    }
    assert as_parameters(given) == {
        "model.layers": (8, 8),
        "model.act": "RELU",
        "model.fit": "train",
        "number": 0.5,
        "flag": True,
        "none": None,
        "kind": "Config",
    }


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(st.dictionaries(st.text(), values, max_size=50))
def test_what_is_kept_is_small_and_stays_what_it_is(given):
    found = bounded(as_parameters(given))
    assert len(found) <= 32 and len(repr(found)) < 300_000
    assert all(len(name) <= 100 for name in found)
    assert bounded(as_parameters(found)) == found
