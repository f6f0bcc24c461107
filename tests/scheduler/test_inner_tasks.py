"""Tasks that tasks submit belong to their job or search, and are within the limits of its owner."""

import asyncio

import pytest
from distributed import Event, Nanny, get_client, rejoin, secede, worker_client
from driving import Client, in_job, inside, until, with_plugin
from moving import AtOnce

import dask_slaq as slaq

TWO_THREADS = {"ann": {"max-threads": 2}, "default": {}}


@pytest.fixture(autouse=True)
def nothing_ran():
    AtOnce.forget()


def leaf(k):
    AtOnce.make(0.05)
    return k


def leaves(client, n, **given):
    return sum(client.gather(client.map(leaf, range(n), pure=False, **given)))


def by_worker_client(n):
    with worker_client() as client:
        return leaves(client, n)


def by_get_client(n):
    client = get_client()
    futures = client.map(leaf, range(n), pure=False)
    secede()
    found = sum(client.gather(futures))
    rejoin()
    return found


def with_its_thread(n):
    return leaves(get_client(), n)


def by_a_client_of_its_own(n):
    with Client(get_client().scheduler.address, set_as_default=False) as client:
        return leaves(client, n)


def deeper(n):
    with worker_client() as client:
        return client.submit(by_worker_client, n, pure=False).result()


def usage(found):
    return {row["owner"]: row["core_seconds"] for row in found["rows"] if row["core_seconds"]}


@pytest.mark.parametrize(
    "tree", [by_worker_client, by_get_client, with_its_thread, by_a_client_of_its_own, deeper]
)
@with_plugin([4, 4], owners=TWO_THREADS)
async def test_tasks_that_a_task_submits_are_of_its_job(c, s, plugin, a, b, tree):
    async with slaq.job("of ann", owner="ann", client=c), slaq.job("of bob", owner="bob", client=c):
        futures = in_job(c, "of ann").map(tree, [8, 8], pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == [28, 28]
        assert max(AtOnce.begun) == 2
        assert not inside(plugin).records.inner and not inside(plugin).records.submitter
    assert usage(await slaq.usage(client=c)).keys() == {"ann"}


def and_goes_on(n):
    found = leaves(get_client(), n)
    AtOnce.make(0.2)
    return found


@pytest.mark.parametrize(("function", "n"), [(with_its_thread, 4), (and_goes_on, 2)])
@with_plugin([4, 4], owners={"ann": {"max-threads": 1}, "default": {}})
async def test_a_task_lends_its_thread_to_its_own_tasks(c, s, plugin, a, b, function, n):
    """Its owner is at its limit."""
    async with slaq.job("of ann", owner="ann", client=c):
        futures = c.map(function, [n] * 3, pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == [sum(range(n))] * 3
        assert max(AtOnce.begun) == 1


def on_gpus(n):
    with worker_client() as client:
        return leaves(client, n, resources={"GPU": 1})


TWO_GPUS = {"ann": {"max-resources": {"GPU": 2}}, "default": {}}


@with_plugin([4, 4], owners=TWO_GPUS, worker_kwargs={"resources": {"GPU": 4}})
async def test_what_a_task_without_a_thread_needs_counts_for_the_limit(c, s, plugin, a, b):
    """Dask gives its GPU to nobody else; but the tasks that it waits for may have one."""

    def hold(k):
        secede()
        AtOnce.make(0.1)

    async with slaq.job("of ann", owner="ann", client=c):
        await c.gather(c.map(hold, range(6), pure=False, resources={"GPU": 1}))
        assert max(AtOnce.begun) == 2
        futures = c.map(on_gpus, [4, 4], pure=False, resources={"GPU": 1})
        assert await asyncio.wait_for(c.gather(futures), 60) == [6, 6]
        assert max(AtOnce.begun) == 2
        assert not any(pool.holds for pool in inside(plugin).pools.values())


@with_plugin([4, 4], owners=TWO_THREADS)
async def test_tasks_that_a_model_submits_are_of_its_search_and_no_models(c, s, plugin, a, b):
    def train(p):
        for k in range(3):
            by_worker_client(4)
            slaq.report(p + 1 / (k + 1))
        return p

    async with slaq.search("grid", owner="ann", steps=3, client=c) as search:
        inside(plugin).clients.know(c.id, "bob")  # of the same client, after her
        futures = search.map(train, [1, 2, 3])
        assert await asyncio.wait_for(c.gather(futures), 60) == [1, 2, 3]
        trials = await search.trials()
        assert [trial["state"] for trial in trials] == ["done"] * 3
        assert inside(plugin).search("grid").bound == 9
        assert max(AtOnce.begun) == 2
    await until(lambda: not inside(plugin).reports)
    assert usage(await slaq.usage(client=c)).keys() == {"ann"}


@pytest.mark.parametrize("own", [False, True])
@with_plugin([4], owners=TWO_THREADS, Worker=Nanny)
async def test_the_clients_of_a_workers_process_name_its_tasks(c, s, plugin, a, own):
    def tree(k):
        from distributed import Client, get_client

        client = get_client()
        if own:
            client = Client(client.scheduler.address, set_as_default=False)
        return client.gather(client.map(lambda i: i + k, range(3), key="leaf", pure=False))

    async with slaq.job("of ann", owner="ann", client=c), slaq.job("of bob", owner="bob", client=c):
        futures = in_job(c, "of ann").map(tree, [1, 2], pure=False)
        assert await asyncio.wait_for(c.gather(futures), 60) == [[1, 2, 3], [2, 3, 4]]
        jobs = {str(b.key): b.job for b in inside(plugin).bindings}
        assert set(jobs.values()) == {"of ann"} and len(jobs) >= 5


def held(k):
    Event("inner").wait()
    return k


def holds(k):
    return get_client().submit(held, k, pure=False).result()


@with_plugin([1, 1, 1], owners={"ann": {"max-threads": 1}, "default": {}})
async def test_a_task_lends_its_thread_again_to_what_is_computed_anew(c, s, plugin, a, b, d):
    async with slaq.job("of ann", owner="ann", client=c), slaq.job("of bob", owner="bob", client=c):
        future = in_job(c, "of ann").submit(holds, 1, pure=False)
        await until(lambda: any(ts.prefix.name == "held" for ts in s.tasks.values()))
        ts = next(ts for ts in s.tasks.values() if ts.prefix.name == "held")
        await until(lambda: ts.processing_on)
        dies = next(w for w in (a, b, d) if w.address == ts.processing_on.address)
        await dies.close(executor_wait=False)
        await until(lambda: ts.processing_on and ts.processing_on.address != dies.address)
        await Event("inner", client=c).set()
        assert await asyncio.wait_for(c.gather(future), 30) == 1
