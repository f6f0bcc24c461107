"""What to persist, counted on clusters without `SlaqPlugin`."""

import subprocess
import sys

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster
from driving import gen_cluster, until

from dask_slaq import persisting
from dask_slaq.core.errors import InvalidSetting, SlaqError

T = "0123456789abcdef" * 2
LIMITED = {"memory_limit": 10**9}


@pytest.fixture(autouse=True)
def unfused():
    with dask.config.set({"optimization.fuse.active": False}):
        yield


def made(size=100):
    """A result that Dask forgets when nobody needs it any more."""
    return dask.delayed(np.full, pure=True)(size, 2.0, dask_key_name=f"load{size}-{T}")


def total(of, plus):
    """A result that needs it."""
    return dask.delayed(lambda x: (x + plus).sum())(of)


ONE, OTHER = "load100", "load200"


@gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs=LIMITED)
async def test_a_block_tells_what_it_computes_again(c, s, a, b):
    x = made()
    async with persisting.watch(c) as found:
        for k in range(3):
            assert await c.compute(total(x, k)) == (2.0 + k) * 100
    assert "slaq" not in s.plugins
    layers = {layer["layer"]: layer for layer in found["layers"]}
    assert (layers[ONE]["computed"], layers[ONE]["keys"]) == (3, 1)
    assert ONE in repr(found) and "Persist" in repr(found)
    async with persisting.watch(c) as found:  # what was before no longer counts
        x = c.persist(x)
        for k in range(3):
            await c.compute(total(x, k))
    assert found.persist == [] and repr(found).startswith("No result")


@gen_cluster(client=True, nthreads=[("", 1)] * 2, worker_kwargs=LIMITED)
async def test_each_client_is_told_what_its_own_programs_repeat(c, s, a, b):
    await c.register_plugin(persisting.RepeatedResults())
    async with Client(s.address, asynchronous=True) as other:
        for k in range(2):
            await c.compute(total(made(), k))
            await other.compute(total(made(200), k))
        assert ONE in names(await persisting.advise(c))
        assert OTHER in names(await persisting.advise(other))
        assert OTHER not in names(await persisting.advise(c))
        gone = other.id
    counts = s.plugins["repeated-results"]
    await until(lambda: gone not in s.clients)
    assert gone not in counts._counts._clients and gone not in counts._client_of.values()


def names(found):
    return [layer["layer"] for layer in found["layers"]]


@gen_cluster(client=True, nthreads=[("", 1)], worker_kwargs=LIMITED)
async def test_a_limit_and_layers_that_cannot_be_persisted(c, s, a):
    async with persisting.watch(c, "1 MB", without=[ONE]) as found:
        for k in range(2):
            await c.compute(total(made(), k))
    assert found["memory_limit"] == 1e6 and ONE not in found.persist
    for limit in ("much", -1, 0, object()):
        with pytest.raises(InvalidSetting, match="memory"):
            await persisting.advise(c, limit)


@gen_cluster(client=True, nthreads=[("", 1)])
async def test_without_the_plugin_there_is_one_clear_sentence(c, s, a):
    with pytest.raises(SlaqError, match="register RepeatedResults"):
        await persisting.advise(c)


@gen_cluster(client=True, nthreads=[("", 1)], worker_kwargs=LIMITED)
async def test_an_error_ends_the_counting_and_nothing_else(c, s, a, monkeypatch):
    await c.register_plugin(persisting.RepeatedResults())
    counts = s.plugins["repeated-results"]._counts
    monkeypatch.setattr(counts, "_look", lambda *args: 1 / 0)
    assert await c.compute(total(made(), 0)) == 200.0
    with pytest.raises(SlaqError, match="ZeroDivisionError"):
        await persisting.advise(c)


@pytest.mark.slow
def test_it_is_preloaded_and_loads_no_plugin_of_slaq(tmp_path):
    program = (
        "import sys, asyncio\n"
        "from distributed import Scheduler\n"
        "async def run():\n"
        "    async with Scheduler(port=0, dashboard=False, preload='dask_slaq.persisting') as s:\n"
        "        assert 'repeated-results' in s.plugins and 'slaq' not in s.plugins\n"
        "        loaded = [n for n in sys.modules if n.startswith('dask_slaq.')]\n"
        "        assert not [n for n in loaded if n.startswith('dask_slaq.scheduler')], loaded\n"
        "asyncio.run(run())\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_in_a_program_that_blocks():
    with (
        LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0",
            memory_limit="1GB",
        ) as cluster,
        Client(cluster) as client,
        persisting.watch() as found,
    ):  # fmt: skip
        for k in range(2):
            total(made(), k).compute()
        assert names(persisting.advise(client))
        assert not found
