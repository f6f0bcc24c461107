"""A search fills no worker: a model begins beside those that wait only where it has room."""

import asyncio
import functools
import threading
import time

import dask
import pytest
from distributed import Scheduler, Worker
from driving import in_job, inside, tasks_of, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.trials import TrialEvent
from dask_slaq.worker import reports
from dask_slaq.worker.trial_agent import agent_of
from dask_slaq.worker.trial_slot import TrialSlot

STEPS = 12
#: Bytes of a process without models, and the memory limit of a worker.
BARE, LIMIT = 80e6, 1e9

_lock = threading.Lock()
_held: dict[int, float] = {}  # bytes of each model that has begun


def hold(number: int, nbytes: float) -> None:
    with _lock:
        _held[number] = _held.get(number, 0.0) + nbytes


def train(number: int, nbytes: float, grows: bool, seconds: float = 0.006) -> int:
    for k in range(STEPS):
        if grows or k == 0:
            hold(number, nbytes / STEPS if grows else nbytes)
        time.sleep(seconds)
        slaq.report(number % 4 + 1 / (k + 1))
    with _lock:
        _held.pop(number, None)
    return number


async def measured(scheduler: Scheduler, worker: Worker, *, at_rest: bool = True) -> list[float]:
    """Let a worker measure what its models hold. Returns its memory at each measurement."""
    seen: list[float] = []
    if at_rest:
        _held.clear()
    recent = worker.monitor.recent

    def memory() -> float:
        with _lock:
            seen.append(BARE + sum(_held.values()))
        return seen[-1]

    worker.monitor.get_process_memory = memory
    worker.monitor.recent = lambda: {**recent(), "memory": memory()}
    if at_rest:
        await until(lambda: scheduler.workers[worker.address].memory.process == BARE, 20)
    return seen


small_worker = functools.partial(
    with_plugin, [1], worker_kwargs={"memory_limit": LIMIT, "heartbeat_interval": "200ms"}
)


@pytest.mark.parametrize(("megabytes", "grows"), [(300, False), (250, True), (20, False)])
@small_worker()
async def test_models_leave_room_on_their_worker(c, s, plugin, a, megabytes, grows):
    seen = await measured(s, a)
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        seconds = 0.03 if megabytes == 20 else 0.006  # so that there is time for turns
        given = {"nbytes": 1e6 * megabytes, "grows": grows, "seconds": seconds, "pure": False}
        futures = c.map(train, range(12), **given)
        assert await c.gather(futures) == list(range(12))
    # What a model that grows will take is known after its first steps, while others begin.
    assert max(seen) <= (0.6 + 0.2 * grows) * LIMIT
    waited = [trial["waited"] > 0 for trial in await search.trials()]
    assert sum(waited) >= 6 if megabytes == 20 else sum(waited) < 12


@pytest.mark.parametrize("most", [2, 100])
@small_worker()
async def test_models_that_are_on_the_worker_before_they_begin(c, s, plugin, a, most):
    seen = await measured(s, a)
    async with slaq.search("grid", client=c, steps=STEPS, max_waiting=most):
        futures = [c.submit(train, k, 250e6, False, pure=False) for k in range(12)]
        assert await c.gather(futures) == list(range(12))
    assert max(seen) <= 0.6 * LIMIT


@small_worker()
async def test_few_enough_wait_also_where_all_tasks_are_on_the_worker(c, s, plugin, a):
    await measured(s, a)
    most = 0
    async with slaq.search("grid", client=c, steps=STEPS, max_waiting=2):
        futures = [c.submit(train, k, 1e6, False, pure=False) for k in range(12)]
        trials = inside(plugin).trials("grid")
        while not all(future.done() for future in futures):
            most = max(most, trials.waiting)
            await asyncio.sleep(0.005)
    # Some may be on their way, and one that takes over goes on after the other one waits.
    assert 1 <= most <= 5


@small_worker(policy="fair", epoch="50ms")
async def test_two_searches_share_the_room(c, s, plugin, a):
    seen = await measured(s, a)
    async with slaq.search("one", client=c, steps=STEPS), slaq.search("two", client=c):
        futures = []
        for name, numbers in (("one", range(8)), ("two", range(8, 16))):
            with tasks_of(name), dask.annotate(slaq_search=inside(plugin).search(name).run):
                futures += c.map(train, numbers, nbytes=200e6, grows=False, pure=False, key=name)
        assert await c.gather(futures) == list(range(16))
    assert max(seen) <= 0.8 * LIMIT


@small_worker(policy="fair", epoch="50ms")
async def test_a_job_takes_no_thread_in_whose_place_a_model_would_begin(c, s, plugin, a):
    seen = await measured(s, a)
    async with slaq.job("other", client=c), slaq.search("grid", client=c, steps=STEPS):
        others = in_job(c, "other").map(time.sleep, [0.02] * 60, pure=False)
        futures = c.map(train, range(12), nbytes=200e6, grows=False, pure=False)
        assert await c.gather(futures) == list(range(12))
        await c.gather(others)
    assert max(seen) <= 0.8 * LIMIT


@with_plugin([1], worker_kwargs={"memory_limit": 0})
async def test_a_worker_without_a_limit_takes_all(c, s, plugin, a):
    await measured(s, a)
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        given = {"nbytes": 300e6, "grows": False, "seconds": 0.03, "pure": False}
        futures = c.map(train, range(12), **given)
        assert await c.gather(futures) == list(range(12))
    assert sum(trial["waited"] > 0 for trial in await search.trials()) >= 6


@small_worker()
async def test_nothing_waits_after_a_worker_died_of_its_memory(c, s, plugin, a):
    await measured(s, a)
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(train, range(12), nbytes=1e6, grows=False, seconds=0.02, pure=False)
        trials = inside(plugin).trials("grid")
        await until(lambda: trials.waiting >= 2)
        hold(-1, 0.9 * LIMIT)
        await until(lambda: inside(plugin).quotas._memory[a.address][0] > 0.9 * LIMIT)
        await a.close(executor_wait=False)
        _held.clear()
        async with Worker(s.address, nthreads=1, memory_limit=LIMIT) as b:
            await measured(s, b, at_rest=False)
            await until(lambda: trials.alive)
            while not all(future.done() for future in futures):
                assert not trials.waiting
                await asyncio.sleep(0.005)
            assert await c.gather(futures) == list(range(12))


@small_worker()
async def test_a_worker_that_leaves_for_another_reason_changes_nothing(c, s, plugin, a):
    a.monitor.get_process_memory = lambda: 1e8  # these tests' process may take more than its limit
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(train, range(4), nbytes=1e6, grows=False, pure=False)
        search = inside(plugin).search("grid")
        await until(lambda: search.trials.alive)
        # Nannies tell so, and anybody may.
        for told in ("nonsense", {}, {"worker": []}, {"worker": a.address}):
            await c.log_event("worker-restart-memory", told)
        await c.log_event("all", {"action": "remove-worker", "worker": a.address})
        await a.close(executor_wait=False)
        assert search.deadly == 0
        async with Worker(s.address, nthreads=1):
            await c.gather(futures)


@small_worker()
async def test_what_begins_together_shares_the_growth(c, s, plugin, a):
    memory, agent = [100.0], agent_of(a)
    a.monitor.get_process_memory = lambda: memory[0]

    def grown(*keys, now):
        memory[0] = now
        return [agent.report(key, "run", None, 1.0).unsent.grown[-1] for key in keys]

    for key in "xyz":
        agent.begin(key)
    assert grown(*"xyz", now=400.0) == [100.0] * 3
    assert grown("x", now=410.0) == [10.0]
    agent.begin("w")
    assert grown("x", now=410.0) == [None]
    assert grown("w", now=450.0) == [40.0]
    agent.leave("w")
    assert grown("x", "x", now=410.0) == [None, 0.0]
    for key in "xyz":
        agent.leave(key)
    assert not agent.knows("x")


@small_worker()
async def test_no_second_is_lost_or_doubled_between_two_threads(c, s, plugin, a, monkeypatch):
    """A trial reports while the event loop makes a message of what it has reported."""
    agent, messages = agent_of(a), []
    monkeypatch.setattr(agent, "_post", messages.append)
    monkeypatch.setattr(agent, "is_cancelled", lambda slot: False)
    monkeypatch.setattr(reports, "_task_here", lambda: (a, "x"))
    monkeypatch.setattr(reports, "_pool_here", lambda: None)
    monkeypatch.setattr(reports, "run_of", lambda *_: "run")
    reports.report_trial(1.0)
    await until(lambda: messages)
    slot: TrialSlot = agent.slots["x"]
    slot.unsent.computed, slot.sent = 5.0, time.monotonic() + 100
    clock, thread = time.monotonic, threading.Thread(target=reports.report_trial, args=(2.0,))

    def meanwhile() -> float:
        if not thread.ident:
            slot.since = clock() - 100
            thread.start()
            thread.join(0.2)
        return clock()

    monkeypatch.setattr("dask_slaq.worker.trial_slot.monotonic", meanwhile)
    agent.send(slot, TrialEvent.REPORTS)
    thread.join()

    def total() -> float:
        return slot.unsent.computed + sum(message["computed"] for message in messages[1:])

    await asyncio.wait([asyncio.ensure_future(until(lambda: total() >= 105))], timeout=2)
    assert 105 <= total() < 110, messages
    agent.leave("x")
