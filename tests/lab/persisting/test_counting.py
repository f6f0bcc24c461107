"""What a client computes more than once is counted, on clusters without `SlaqPlugin`."""

import asyncio

import dask
import numpy as np
import pytest
from commands import python
from distributed import Client, LocalCluster
from driving import gen_cluster, until

from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.lab import persisting
from dask_slaq.lab.persisting import counting

T = "0123456789abcdef" * 2
LIMITED = {"memory_limit": 10**9}


@pytest.fixture(autouse=True)
def unfused():
    with dask.config.set({"optimization.fuse.active": False}):
        yield


def made(size=100, name="load"):
    """A result that Dask forgets when nobody needs it any more."""
    return dask.delayed(np.full, pure=True)(size, 2.0, dask_key_name=f"{name}{size}-{T}")


def total(of, plus):
    """A result that needs it."""
    return dask.delayed(lambda x: (x + plus).sum())(of)


def scaled(of):
    return dask.delayed(np.negative, pure=True)(of, dask_key_name=f"scale-{T}")


def by_name(found):
    return {layer["layer"].removesuffix(f"-{T}"): layer for layer in found["layers"]}


@gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs=LIMITED)
async def test_layers_that_are_computed_again_are_told(c, s, a, b):
    await c.register_plugin(persisting.RepeatedResults())
    for k in range(3):
        assert await c.compute(total(scaled(made()), k)) == (k - 2.0) * 100
        while s.tasks:  # Dask may lose a key that comes again while it is released
            await asyncio.sleep(0.01)
    assert "slaq" not in s.plugins
    found = await persisting.advise(c, "1 MB")
    layers = by_name(found)
    assert {*layers} == {"load100", "scale"} and found["memory_limit"] == 1e6
    for each in layers.values():
        assert (each["computed"], each["keys"]) == (3, 1) and each["bytes"] >= 800
    assert [*layers["scale"]["needs"]] == [layers["load100"]["layer"]]
    assert layers["scale"]["elsewhere"] == 1.0  # a layer of sums, each computed once, needed it
    assert layers["load100"]["elsewhere"] == 0.0
    assert found.persist == [layers["scale"]["layer"]]
    assert "Persist scale" in repr(found)
    for limit in ("much", -1, 0, object()):
        with pytest.raises(InvalidSetting, match="memory"):
            await persisting.advise(c, limit)


@gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs=LIMITED)
async def test_a_result_under_another_token_is_the_same(c, s, a, b):
    """As where it is an argument of a delayed function, whose keys Dask must not reuse."""
    await c.register_plugin(persisting.RepeatedResults())
    for name in ("load", f"load-{T}"):
        graph = {(f"{name}-{T}", k): (np.ones, 10) for k in range(2)}
        for future in c.get(graph, list(graph), sync=False):
            await future
        del future
    (layer,) = (await persisting.advise(c))["layers"]
    assert layer["layer"] == f"load-{T}" and layer["computed"] == 4


@gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs=LIMITED)
async def test_each_client_is_told_what_its_own_programs_repeat(c, s, a, b):
    await c.register_plugin(persisting.RepeatedResults())
    async with Client(s.address, asynchronous=True) as other:
        for k in range(2):
            await c.compute(total(made(), k))
            await other.compute(total(made(200), k))
        assert {*by_name(await persisting.advise(c))} == {"load100"}
        assert {*by_name(await persisting.advise(other))} == {"load200"}
        gone = other.id
    plugin = s.plugins["repeated-results"]
    await until(lambda: gone not in s.clients)
    assert gone not in plugin._counts and gone not in plugin._client_of.values()


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_what_is_not_there_is_told(c, s, a):
    with pytest.raises(SlaqError, match="register RepeatedResults"):
        await persisting.advise(c)
    await c.register_plugin(persisting.RepeatedResults())
    for k in range(2):
        await c.compute(total(made(), k))
    s.workers[a.address].memory_limit = 0
    with pytest.raises(InvalidSetting, match="no memory limit: give memory_limit"):
        await persisting.advise(c)


@gen_cluster(client=True, nthreads=[("", 1)], worker_kwargs=LIMITED)
async def test_memory_is_bounded(c, s, a, monkeypatch):
    monkeypatch.setattr(counting, "MOST_KEYS", 10)
    await c.register_plugin(persisting.RepeatedResults())
    for k in range(12):
        await c.compute(total(made(), k))
    (counts,) = s.plugins["repeated-results"]._counts.values()
    assert len(counts.keys) == 10 >= len(counts.layers)
    assert {layer.name for layer in counts.keys.values()} == {*counts.layers}
    assert {*by_name(await persisting.advise(c))} == {"load100"}


@pytest.mark.slow
def test_it_is_preloaded_and_loads_no_plugin_of_slaq(tmp_path):
    program = (
        "import sys, asyncio\n"
        "from distributed import Scheduler\n"
        "async def run():\n"
        "    preload = 'dask_slaq.lab.persisting'\n"
        "    async with Scheduler(port=0, dashboard=False, preload=preload) as s:\n"
        "        assert 'repeated-results' in s.plugins and 'slaq' not in s.plugins\n"
        "        loaded = [n for n in sys.modules if n.startswith('dask_slaq.')]\n"
        "        assert not [n for n in loaded if n.startswith('dask_slaq.scheduler')], loaded\n"
        "asyncio.run(run())\n"
    )
    python(program)


def test_a_block_of_a_program_tells_what_it_computes_again():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0",
            memory_limit="1GB",
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        with persisting.watch() as found:
            for k in range(2):
                total(made(), k).compute()
            assert not found and by_name(persisting.advise(client))
        assert {*by_name(found)} == {"load100"} and found.persist
        with persisting.watch(client) as found:  # what was before no longer counts
            x = made().persist()
            for k in range(2):
                total(x, k).compute()
        assert found.persist == [] and repr(found).startswith("No result")
