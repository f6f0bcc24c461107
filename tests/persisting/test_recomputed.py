"""Results that a job computes more than once are counted, and written to the event log."""

import json
from operator import add

import dask
import dask.array as da
import numpy as np
import pytest
from driving import gen_cluster, start_plugin

import dask_slaq as slaq
from dask_slaq.core.recording.replay import replay
from dask_slaq.persisting import counting as recomputed


def events_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def recomputed_in(path):
    """The events ``recomputed`` by job, and their layers by name without the token."""
    found = [event for event in events_of(path) if event["event"] == "recomputed"]
    return {
        event["job"]: {layer["layer"].rsplit("-", 1)[0]: layer for layer in event["layers"]}
        for event in found
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "log.jsonl"


def with_log(test):
    """A test on a cluster with the plugin, which writes a log."""

    def run(path):
        @gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs={"memory_limit": 10**10})
        async def inside(c, s, a, b):
            plugin = await start_plugin(c, s, log=str(path))
            await test(c, plugin, path)

        with dask.config.set({"optimization.fuse.active": False}):
            inside()

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def double(x):
    return 2.0 * x


async def compute(client, graph, keys):
    futures = client.get(graph, keys, sync=False)
    for future in futures:
        await future


T = "0123456789abcdef" * 2


def graph(last):
    """Two loaded blocks, scaled; `last` is a layer with a sum of each."""
    scaled = {(f"scale-{T}", k): (add, (f"load-{T}", k), 1) for k in range(2)}
    loaded = {(f"load-{T}", k): (np.ones, 10 * (k + 1)) for k in range(2)}
    wanted = [(f"{last}-{T}", k) for k in range(2)]
    return {
        **loaded,
        **scaled,
        **{(f"{last}-{T}", k): (np.sum, (f"scale-{T}", k)) for k in range(2)},
    }, wanted


@with_log
async def test_a_layer_that_is_computed_again_is_counted(c, plugin, path):
    async with slaq.job("a", client=c) as job:
        for k in range(3):
            await compute(c, *graph(f"sum{k}"))
            job.report(1.0 / (k + 1))
    async with slaq.job("once", client=c):
        await compute(c, *graph("sum"))
    plugin.stop()
    ((name, layers),) = recomputed_in(path).items()
    assert name == "a" and {*layers} == {"load", "scale"}
    load, scale = layers["load"], layers["scale"]
    for layer in (load, scale):
        assert (layer["computed"], layer["keys"]) == (6, 2)
        assert layer["bytes"] >= 8 * (10 + 20) and layer["seconds"] >= 0
    assert load["needs"] == {} and scale["needs"] == {f"load-{T}": 1.0}
    assert scale["elsewhere"] == 3.0  # each sum needed it, and was computed once
    assert load["elsewhere"] == 0.0
    events = events_of(path)
    kinds = [(event["event"], event.get("job")) for event in events]
    assert kinds.index(("recomputed", "a")) < kinds.index(("leave", "a"))
    (event,) = (event for event in events if event["event"] == "recomputed")
    assert event["memory"] == 2 * 10**10
    found = replay(events)
    assert found.difference is None and found.reproduced == found.decisions


@with_log
async def test_what_is_persisted_is_computed_once(c, plugin, path):
    async with slaq.job("a", client=c):
        dsk, _ = graph("sum")
        kept = c.get(dsk, [(f"scale-{T}", k) for k in range(2)], sync=False)
        for k in range(3):
            await compute(c, *graph(f"sum{k}"))
        del kept
    plugin.stop()
    assert recomputed_in(path) == {}


@with_log
async def test_a_job_that_runs_when_the_log_closes_is_written(c, plugin, path):
    async with slaq.job("a", client=c):
        await compute(c, *graph("x"))
        await compute(c, *graph("y"))
        plugin.stop()
    events = events_of(path)
    kinds = [(event["event"], event.get("job")) for event in events]
    assert kinds.index(("recomputed", "a")) < kinds.index(("leave", "a"))


@with_log
async def test_an_array_under_another_token_is_the_same(c, plugin, path):
    """As where it is an argument of a delayed function, whose keys Dask must not reuse."""
    async with slaq.job("a", client=c):
        await compute(c, *graph("x"))
        again = {(f"load-{T}-{T}", k): (np.ones, 10 * (k + 1)) for k in range(2)}
        await compute(c, again, list(again))
    plugin.stop()
    (layers,) = recomputed_in(path).values()
    assert {*layers} == {"load"} and layers["load"]["computed"] == 4


@with_log
async def test_an_array_that_is_trained_on_again_and_again(c, plugin, path):
    x = da.random.RandomState(0).normal(size=(40, 3), chunks=(10, 3))
    x = x.map_blocks(double)
    async with slaq.job("a", client=c):
        for k in range(3):
            await c.compute(da.concatenate([x, x]).rechunk((30, 3)).sum() + k)
    plugin.stop()
    (layers,) = recomputed_in(path).values()
    assert layers["double"]["computed"] == 12 and layers["double"]["keys"] == 4


@with_log
async def test_memory_is_bounded(c, plugin, path):
    counts = plugin.recomputed
    async with slaq.job("a", client=c):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recomputed, "MOST_KEYS", 10)
            patch.setattr(recomputed, "MOST_LAYERS", 2)
            for k in range(12):
                await compute(c, *graph(f"sum{k}"))
            known = counts._jobs["a"]
            assert len(known.keys) == 10
            assert {layer.name for layer in known.layers.values()} == {*known.layers}
            assert len(known.layers) <= 5 and {*known.repeated} == {f"load-{T}", f"scale-{T}"}
            for k in range(12):  # each twice
                for _ in range(2):
                    again = {(f"other{k}-{T}", 0): (np.ones, 3)}
                    await compute(c, again, list(again))
            assert len(known.repeated) <= 4
    plugin.stop()
    (layers,) = recomputed_in(path).values()
    assert len(layers) == 2


@with_log
async def test_an_error_in_the_counts_disturbs_nothing(c, plugin, path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recomputed, "_identify", lambda ts: 1 / 0)
        async with slaq.job("a", client=c):
            await compute(c, *graph("x"))
    assert plugin.failed is None and "ZeroDivisionError" in plugin.recomputed.broken
    plugin.stop()
