"""Guards the estimates of moved inputs, which decide whether a task waits for its home."""

import asyncio
from types import SimpleNamespace

import pytest

import dask_slaq as slaq
from dask_slaq.scheduler.dispatch.transfers import Transfers
from dask_slaq.simulation import virtual

MB = 10**6


def worker(address):
    return SimpleNamespace(address=address)


def needs(*inputs):
    return SimpleNamespace(dependencies=inputs)


def held(key, nbytes, *workers):
    return SimpleNamespace(key=key, nbytes=nbytes, who_has=set(map(Address, workers)))


class Address(SimpleNamespace):
    def __hash__(self):
        return hash(self.address)

    def __init__(self, ws):
        super().__init__(address=ws.address)


def arrive_in(transfers, inputs, ws):
    seconds, at_once = transfers.arrive_in(needs(*inputs), Address(ws))
    return round(seconds, 2), at_once


def test_inputs_arrive_one_after_the_other_and_each_only_once():
    transfers = Transfers(SimpleNamespace(bandwidth=100 * MB))
    a, b, c = map(worker, "abc")
    one, two = held("one", 40 * MB, a), held("two", 40 * MB, a)
    assert arrive_in(transfers, [one, two], a) == (0.0, True)
    assert arrive_in(transfers, [one], b) == (0.4, True)
    transfers.sent(needs(one), Address(b))
    assert arrive_in(transfers, [one], b) == (0.4, True)  # it is on its way
    assert arrive_in(transfers, [two], b) == (0.8, False)  # b receives, and a sends, one at a time
    assert arrive_in(transfers, [two], c) == (0.8, False)
    two.who_has.add(Address(c))
    assert arrive_in(transfers, [two], b) == (0.8, False)
    three = held("three", 10 * MB, c)
    assert arrive_in(transfers, [three], a) == (0.1, True)  # a receives while it sends


async def use(*_):
    return await virtual.work(seconds=0.002)


async def short_tasks_on_large_inputs(policy):
    """Return the seconds of many short tasks whose inputs are on the smaller workers."""
    cluster = virtual.Cluster([8, 1, 1])
    async with cluster, cluster.client() as one, cluster.client() as two:
        await one.register_plugin(slaq.SlaqPlugin(policy=policy))
        small = [worker.address for worker in cluster.workers[1:]]
        async with slaq.job("other", client=one), slaq.job("short", client=two):
            there = cluster.workers[0].address
            other = one.map(virtual.work, range(60), seconds=0.1, pure=False, workers=there)
            inputs = [
                await two.scatter(virtual.Sized(i, 40 * MB), workers=[address], hash=False)
                for i, address in enumerate(small * 3)
            ]
            await asyncio.sleep(0.5)
            begin = virtual.now()
            await two.gather([two.submit(use, inputs[i % 6], pure=False) for i in range(240)])
            took = virtual.now() - begin
            del other
            return took


@pytest.mark.parametrize("policy", ["fair", "max-total"])
def test_short_tasks_of_unknown_length_do_not_move_large_inputs(policy):
    # At home they take 0.24 s. Each input takes 0.4 s to move, and a worker sends one at a time.
    assert virtual.run(short_tasks_on_large_inputs, policy) < 0.5
