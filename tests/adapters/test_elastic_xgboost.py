"""Boosting in steps gives the same model, whichever workers run each step."""

from __future__ import annotations

import itertools
import json
import sys

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster
from distributed.utils_test import poll_for
from driving import PATIENCE

import dask_slaq as slaq
from dask_slaq.adapters import instrument
from dask_slaq.adapters.elastic_xgboost import granted, place
from dask_slaq.client.queries import bindings

xgboost = pytest.importorskip("xgboost")
train = slaq.xgboost.train
SETTINGS = {"objective": "reg:squarederror", "max_depth": 3}
ROUNDS = 6


@pytest.fixture(scope="module")
def client():
    with (
        # Work stealing may move the tasks that put rows in their place.
        dask.config.set({"distributed.scheduler.work-stealing": False}),
        LocalCluster(
            n_workers=3, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def rows():
    """1,200 rows of columns with more values than bins, and some that are missing."""
    random = np.random.default_rng(0)
    x = random.normal(size=(1200, 4))
    y = x[:, 0] + x[:, 1] ** 2 + 0.1 * random.normal(size=len(x))
    x[::7, 3] = np.nan
    return x, y


@pytest.fixture(scope="module")
def data(rows):
    x, y = rows
    return da.from_array(x, chunks=(200, 2)), da.from_array(y, chunks=200)


def trees(booster):
    return [json.loads(tree) for tree in booster.get_dump(dump_format="json")]


def test_the_model_is_the_same_whichever_workers_each_step_has(client, rows, data):
    a, b, c = sorted(client.nthreads())
    sets = itertools.cycle([[a], [b, c], [a, b, c]])
    ran = []

    def next_set():
        ran.append(next(sets))
        return ran[-1]

    whole = train(SETTINGS, *data, ROUNDS, rounds_per_step=ROUNDS, workers=lambda: [a])
    elastic = train(SETTINGS, *data, ROUNDS, rounds_per_step=1, workers=next_set)

    assert len(ran) == ROUNDS
    assert trees(elastic) == trees(whole)
    matrix = xgboost.DMatrix(rows[0])
    np.testing.assert_array_equal(elastic.predict(matrix), whole.predict(matrix))


def test_binning_costs_no_accuracy_to_speak_of(client, rows, data):
    matrix = xgboost.DMatrix(*rows)
    ours = train(SETTINGS, *data, 20, rounds_per_step=20)
    plain = xgboost.train({**SETTINGS, "nthread": 1}, matrix, 20)
    errors = [np.sqrt(((m.predict(matrix) - rows[1]) ** 2).mean()) for m in (ours, plain)]
    assert errors[0] == pytest.approx(errors[1], rel=0.1)


def test_every_round_reports(client, data):
    losses = []
    with instrument(losses.append):
        train(SETTINGS, *data, 5, rounds_per_step=2)
    assert len(losses) == 5
    assert np.all(np.diff(losses) < 0)


def test_a_job_trains_on_all_workers_alone_and_where_it_is_granted_beside_another(client, data):
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))

    def ran():
        return {b["worker"] for b in bindings(client) if b["job"] == "trees" and gang(b["key"])}

    with slaq.job("trees", client=client):
        train(SETTINGS, *data, 4, rounds_per_step=2)
        poll_for(lambda: slaq.status(client)["jobs"]["trees"]["iteration"] == 4, PATIENCE)
        assert ran()
    client.register_plugin(slaq.SlaqPlugin(policy="fair", epoch="1h"))
    with slaq.job("other", client=client), slaq.job("trees", client=client):
        seen = []
        train(
            SETTINGS,
            *data,
            2,
            rounds_per_step=2,
            workers=lambda: seen.append(granted(client)) or seen[-1],
        )
        assert ran() <= set(seen[0]) < set(client.nthreads())


def gang(key):
    return key.startswith("fn-")


def test_says_what_to_install(client, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "xgboost.dask", None)
    with pytest.raises(ImportError, match="xgboost is not installed: pip install dask-slaq"):
        train(SETTINGS, *data)


def test_partitions_move_as_little_as_possible():
    assert place(["a", "a", "b", "b"], ["a", "b"]) == ["a", "a", "b", "b"]
    assert place(["a", "a", "b", "b"], ["b"]) == ["b"] * 4
    assert place(["a", "a", "a", "a"], ["a", "b"]) == ["a", "a", "b", "b"]
    assert place(["a", "b", "b"], ["a", "b"]) == ["a", "b", "b"]
    assert place(["gone"], ["a", "b"]) == ["a"]
    with pytest.raises(ValueError, match="no workers"):
        place(["a"], [])


@pytest.mark.parametrize(
    "change, message",
    [
        ({"X": np.ones((4, 2))}, "must be dask arrays"),
        ({"y": da.ones((1200, 1), chunks=200)}, "y 1, not 2 and 2"),
        ({"y": da.ones(1200, chunks=300)}, "split alike"),
        ({"num_boost_round": 0}, "num_boost_round must be a whole number >= 1, not 0"),
        ({"rounds_per_step": 1.5}, "rounds_per_step must be a whole number >= 1, not 1.5"),
        ({"workers": list}, "no workers to train on"),
    ],
)
def test_says_what_is_wrong(client, data, change, message):
    arguments = {"params": SETTINGS, "X": data[0], "y": data[1], **change}
    with pytest.raises((TypeError, ValueError), match=message):
        train(**arguments)
