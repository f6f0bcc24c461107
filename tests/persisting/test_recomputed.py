"""Results that a client computes more than once are counted by layer."""

from operator import add

import dask.array as da
import numpy as np
from driving import gen_cluster

from dask_slaq.persisting import RepeatedResults, counting

counted = gen_cluster(
    client=True,
    nthreads=[("", 1)] * 2,
    worker_kwargs={"memory_limit": 10**10},
    config={"optimization.fuse.active": False},
)


async def start(client, scheduler):
    await client.register_plugin(RepeatedResults())
    return scheduler.plugins["repeated-results"]._counts


def layers_of(counts, client):
    """The layers that repeat, by name without the token."""
    found = counts.counts_of(client.id)
    return {layer["layer"].rsplit("-", 1)[0]: layer for layer in found["layers"]}


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


@counted
async def test_a_layer_that_is_computed_again_is_counted(c, s, a, b):
    counts = await start(c, s)
    for k in range(3):
        await compute(c, *graph(f"sum{k}"))
    layers = layers_of(counts, c)
    assert {*layers} == {"load", "scale"}
    load, scale = layers["load"], layers["scale"]
    for layer in (load, scale):
        assert (layer["computed"], layer["keys"]) == (6, 2)
        assert layer["bytes"] >= 8 * (10 + 20) and layer["seconds"] >= 0
    assert load["needs"] == {} and scale["needs"] == {f"load-{T}": 1.0}
    assert scale["elsewhere"] == 3.0  # each sum needed it, and was computed once
    assert load["elsewhere"] == 0.0
    assert counts.counts_of(c.id)["memory"] == 2 * 10**10


@counted
async def test_an_array_under_another_token_is_the_same(c, s, a, b):
    """As where it is an argument of a delayed function, whose keys Dask must not reuse."""
    counts = await start(c, s)
    await compute(c, *graph("x"))
    again = {(f"load-{T}-{T}", k): (np.ones, 10 * (k + 1)) for k in range(2)}
    await compute(c, again, list(again))
    layers = layers_of(counts, c)
    assert {*layers} == {"load"} and layers["load"]["computed"] == 4


@counted
async def test_an_array_that_is_trained_on_again_and_again(c, s, a, b):
    counts = await start(c, s)
    x = da.random.RandomState(0).normal(size=(40, 3), chunks=(10, 3))
    x = x.map_blocks(double)
    for k in range(3):
        await c.compute(da.concatenate([x, x]).rechunk((30, 3)).sum() + k)
    double_ = layers_of(counts, c)["double"]
    assert double_["computed"] == 12 and double_["keys"] == 4


@counted
async def test_memory_is_bounded(c, s, a, b, monkeypatch):
    counts = await start(c, s)
    monkeypatch.setattr(counting, "MOST_KEYS", 10)
    monkeypatch.setattr(counting, "MOST_LAYERS", 2)
    for k in range(12):
        await compute(c, *graph(f"sum{k}"))
    known = counts._clients[c.id]
    assert len(known.keys) == 10
    assert {layer.name for layer in known.layers.values()} == {*known.layers}
    assert len(known.layers) <= 5 and {*known.repeated} == {f"load-{T}", f"scale-{T}"}
    for k in range(12):  # each twice
        for _ in range(2):
            again = {(f"other{k}-{T}", 0): (np.ones, 3)}
            await compute(c, again, list(again))
    assert len(known.repeated) <= 4
    assert len(layers_of(counts, c)) == 2
