"""The tasks of one run of xgboost or LightGBM tell the scheduler that they wait for each other."""

import threading
from collections import defaultdict

import pytest
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.adapters import instrument


class Pinned(SchedulerPlugin):
    """Keeps the annotations of all tasks pinned to a worker, by prefix."""

    name = "pinned"

    def __init__(self):
        self.seen = defaultdict(dict)

    def update_graph(self, scheduler, *, tasks, **kwargs):
        for ts in map(scheduler.tasks.get, tasks):
            if ts.worker_restrictions:
                self.seen[ts.prefix.name][ts.key] = dict(ts.annotations)


@pytest.fixture
def pinned(client):
    plugin = Pinned()
    client.cluster.scheduler.add_plugin(plugin)
    yield plugin.seen
    client.cluster.scheduler.remove_plugin(plugin.name)


def train_xgboost(client, rows, **params):
    xgboost_dask = pytest.importorskip("xgboost.dask")
    data = xgboost_dask.DaskDMatrix(client, rows.chunked("x"), rows.chunked("normal"))
    xgboost_dask.train(client, {"max_depth": 2, **params}, data, num_boost_round=2)


def train_lightgbm(client, rows):
    lightgbm = pytest.importorskip("lightgbm")
    settings = {"n_estimators": 2, "num_leaves": 4, "verbose": -1, "client": client}
    lightgbm.DaskLGBMRegressor(**settings).fit(rows.chunked("x"), rows.chunked("normal"))


def gangs(notes):
    """Number of tasks of each gang, which is what each of its tasks says it is."""
    found = defaultdict(list)
    for note in notes.values():
        found[note["slaq_gang"]].append(note["slaq_gang_size"])
    for sizes in found.values():
        assert sizes == [len(sizes)] * len(sizes)
    return sorted(len(sizes) for sizes in found.values())


@pytest.mark.parametrize("train, prefix", [(train_xgboost, "fn"), (train_lightgbm, "train_part")])
def test_runs_of_several_threads_are_different_gangs(client, rows, pinned, train, prefix):
    def run():
        with instrument(lambda loss: None):
            train(client, rows)

    for _ in range(2):  # LightGBM's runs hang if they start at once, in any order
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    assert len(pinned[prefix]) == sum(gangs(pinned[prefix]))
    assert len(gangs(pinned[prefix])) == 2
    others = [note for name in pinned if name != prefix for note in pinned[name].values()]
    assert not any("slaq_gang" in note for note in others)


def test_threads_are_told_if_the_user_chose_them(client, rows, pinned):
    with instrument(lambda loss: None):
        train_xgboost(client, rows, nthread=1)
        train_xgboost(client, rows)
    threads = [note.get("slaq_threads") for note in pinned["fn"].values()]
    assert set(threads) == {1, None}


def test_without_a_block_nothing_is_annotated(client, rows, pinned):
    train_lightgbm(client, rows)
    assert pinned["train_part"]
    assert not any("slaq_gang" in note for note in pinned["train_part"].values())
