"""The scheduler package relies on these facts about Dask, one test per fact.

None of these tests uses the plugin: when a Dask release changes a fact, its test fails by name.
"""

import asyncio
import math
import threading
from time import time

import pytest
from distributed import Client, Event, Worker, get_worker, secede, worker_client
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.threadpoolexecutor import thread_state
from distributed.utils_test import captured_logger, inc
from driving import another_client, begun, gen_cluster, hook, let_end, state_of, until, wait_for

from dask_slaq.scheduler.dask_hooks import received_at
from dask_slaq.scheduler.owners.identity import follow_connections, sender_of_message


@gen_cluster(client=True, nthreads=[1, 1])
async def test_the_scheduler_is_asked_where_every_ready_task_runs(c, s, a, b):
    """By two methods that may be overridden on the instance; None leaves a task in no-worker."""
    decide, sent = s.decide_worker_non_rootish, []
    s.is_rootish = lambda ts: False
    s.decide_worker_non_rootish = lambda ts: decide(ts) if ts.key in sent else None
    futures = c.map(inc, range(12), pure=False)
    then = c.submit(sum, futures)
    await until(lambda: [s.tasks.get(f.key) in s.unrunnable for f in futures] == [True] * 12)
    await state_of(s, then, "waiting")
    assert not s.queued
    sent.append(futures[3].key)
    async with Worker(s.address):  # all are asked for again
        assert await futures[3] == 4
        assert len(s.unrunnable) == 11
        sent.append(futures[5].key)
        s.transitions({futures[5].key: "processing"}, stimulus_id="test")
        assert await futures[5] == 6
        del s.is_rootish, s.decide_worker_non_rootish
        s.transitions({ts.key: "released" for ts in s.unrunnable}, stimulus_id="test")
        assert await then == sum(range(1, 13))


def hold_in(s, held):
    """Override what Dask asks, as `Seam` does: no worker for the tasks with these keys."""
    decide = s.decide_worker_non_rootish
    s.decide_worker_non_rootish = lambda ts: None if ts.key in held else decide(ts)


@gen_cluster(client=True, nthreads=[1, 1])
async def test_no_worker_tasks_wake_by_transitions_only(c, s, a, b):
    held = {"held"}
    hold_in(s, held)
    future = c.submit(inc, 1, key="held")
    await state_of(s, future, "no-worker")
    ts = s.tasks["held"]
    assert ts in s.unrunnable
    held.clear()
    ts.worker_restrictions = frozenset({b.address})
    await c.gather(c.map(inc, range(20)))
    assert ts.state == "no-worker"
    s.transitions({"held": "processing"}, stimulus_id="test")
    assert (ts.state, ts.processing_on.address) == ("processing", b.address)
    assert await future == 2


@gen_cluster(client=True, nthreads=[1, 1])
async def test_stealing_respects_restrictions(c, s, a, b):
    def restrict(scheduler, *, tasks, **kwargs):
        for key in tasks:
            s.tasks[key].worker_restrictions = frozenset({a.address})

    hook(s, "update_graph", restrict)
    futures = c.map(wait_for, ["go"] * 10, pure=False)
    await until(lambda: len(s.workers[a.address].processing) == 10)
    s.task_prefixes["wait_for"].duration_average = 5
    stealing = s.extensions["stealing"]
    stealing.balance()
    assert not stealing.in_flight
    for ts in s.tasks.values():
        ts.worker_restrictions = None
    stealing.balance()
    assert stealing.in_flight  # so it was the restriction that kept them
    await let_end(c, futures)


@gen_cluster(client=True, nthreads=[1, 1])
async def test_no_workers_timeout_counts_from_the_time_in_unrunnable(c, s, a, b):
    hold_in(s, {"held"})
    future = c.submit(inc, 1, key="held")
    await state_of(s, future, "no-worker")
    s.no_workers_timeout = 60
    assert isinstance(s.unrunnable[s.tasks["held"]], float)
    s._check_no_workers()
    assert s.tasks["held"].state == "no-worker"


@gen_cluster(client=True, nthreads=[1])
async def test_seceded_tasks_are_long_running_and_no_hook_tells(c, s, a):
    left = []
    hook(s, "transition", lambda key, start, *args, **kwargs: left.append(start))

    def seceding():
        with worker_client():
            Event("go").wait()

    future = c.submit(seceding, key="s")
    ws = s.workers[a.address]
    await until(lambda: len(ws.long_running) == 1)
    assert s.tasks["s"].state == "processing" and s.tasks["s"] in ws.processing
    assert "processing" not in left
    assert "long-running" in s.stream_handlers
    await let_end(c, future)


@gen_cluster(client=True, nthreads=[1])
async def test_a_worker_status_change_is_an_event_of_its_address(c, s, a):
    """Which is told in the middle of it: the worker has its new status."""
    seen = []

    def hear(topic, msg):
        if isinstance(msg, dict) and msg.get("action") == "worker-status-change":
            seen.append((topic, s.workers[topic].status))

    hook(s, "log_event", hear)
    a.memory_manager.memory_pause_fraction = False
    for status in (Status.paused, Status.running):
        a.status = status
        await until(lambda status=status: seen and seen[-1] == (a.address, status))
        assert (s.workers[a.address] in s.running) == (status == Status.running)


@gen_cluster(client=True, nthreads=[1])
async def test_a_client_hears_messages_of_the_scheduler_by_name(c, s, a):
    got = []
    c._stream_handlers["test-op"] = lambda **kwargs: got.append(kwargs)
    s.client_send(c.id, {"op": "test-op", "x": 1})
    s.client_send("nobody", {"op": "test-op", "x": 2})
    await until(lambda: got == [{"x": 1}])


@gen_cluster(client=True, nthreads=[1])
async def test_the_loop_over_messages_keeps_the_names_of_the_connection(c, s, a):
    """A message may overwrite them for its handler, and does not change them."""
    got = []
    follow_connections(s)
    s.stream_handlers["test-op"] = lambda **kwargs: got.append((kwargs, sender_of_message()))
    message = {"op": "test-op", "client": "x", "worker": "y"}
    c._send_to_scheduler(dict(message))
    await until(lambda: len(got) == 1)
    a.batched_stream.send(dict(message))
    await until(lambda: len(got) == 2)
    assert [said for said, _ in got] == [{"client": "x", "worker": "y"}] * 2
    assert got[0][1][:4] == (c.id, "", s.client_comms[c.id].comm, None)
    assert got[1][1][:4] == ("", a.address, s.stream_comms[a.address].comm, None)
    assert sender_of_message() is None


@gen_cluster(client=True, nthreads=[1])
async def test_the_hook_of_new_tasks_is_called_in_the_loop_over_messages(c, s, a):
    senders = []
    follow_connections(s)
    hook(s, "update_graph", lambda *args, **kwargs: senders.append(sender_of_message()))
    assert await c.submit(inc, 1) == 2
    async with Client(s.address, asynchronous=True) as later:
        assert await later.submit(inc, 2) == 3
        assert [sender[:2] for sender in senders] == [(c.id, ""), (later.id, "")]
    assert [sender.submitter for sender in senders] == [None, None]


@gen_cluster(client=True, nthreads=[1])
async def test_errors_of_request_handlers_are_raised_at_the_caller(c, s, a):
    async def fails(x):
        raise KeyError(f"no {x}")

    s.handlers["test_op"] = fails
    with captured_logger("distributed", propagate=False), pytest.raises(KeyError, match="no z"):
        await c.scheduler.test_op(x="z")


@gen_cluster(client=True, nthreads=[1])
async def test_metadata_that_is_not_there_is_answered_by_the_default(c, s, a):
    assert await c.scheduler.get_metadata(keys=["slaq"], default=None) is None
    s.task_metadata["slaq"] = {"policy": "fair"}
    assert await c.scheduler.get_metadata(keys=["slaq"], default=None) == {"policy": "fair"}


@gen_cluster(client=True, nthreads=[1])
async def test_registering_calls_start_first_and_unregistering_calls_nothing(c, s, a):
    calls = []

    class Plugin(SchedulerPlugin):
        name = "fact"

        async def start(self, scheduler):
            calls.append(("start", "fact" in scheduler.plugins))

        async def close(self):
            calls.append(("close",))

        async def before_close(self):
            calls.append(("before_close",))

    await s.register_scheduler_plugin(Plugin(), idempotent=False)
    with pytest.warns(UserWarning, match="already contains"):
        await s.register_scheduler_plugin(Plugin(), idempotent=False)
    assert calls == [("start", False), ("start", True)]
    await c.unregister_scheduler_plugin("fact")
    assert "fact" not in s.plugins
    assert len(calls) == 2


@gen_cluster(client=True, nthreads=[1, 1])
async def test_restart_clears_tasks_and_metadata_before_the_restart_hook(c, s, a, b):
    seen = []
    hook(s, "restart", lambda s: seen.append((dict(s.task_metadata), len(s.tasks))))
    s.task_metadata["slaq"] = {}
    future = c.submit(inc, 1)
    await future
    await c.restart(wait_for_workers=False)
    assert seen == [({}, 0)]
    await until(lambda: future.status == "cancelled")


@gen_cluster(client=True, nthreads=[1, 1])
async def test_a_client_that_leaves_releases_its_tasks_and_then_is_told(c, s, a, b):
    told = []
    hook(s, "remove_client", lambda scheduler, client: told.append((client, "held" in s.tasks)))
    other = await another_client(s)
    future = other.submit(wait_for, "go", key="held")
    await state_of(s, future, "processing")
    await other.close()
    await until(lambda: told)
    assert told[0][0] == other.id
    await Event("go").set()
    await until(lambda: "held" not in s.tasks)


@gen_cluster(client=True, nthreads=[1, 1])
async def test_the_stimulus_of_a_graph_says_when_it_was_received(c, s, a, b):
    stimuli = []
    hook(s, "update_graph", lambda *_, stimulus_id, **kwargs: stimuli.append(stimulus_id))
    before = time()
    await c.submit(inc, 1)
    (stimulus,) = stimuli
    assert before - 1 <= received_at(stimulus) <= time()
    assert received_at("a user's own") == -math.inf


# Private parts of Dask that the package touches


@gen_cluster(client=True, nthreads=[1])
async def test_the_queue_is_asked_for_its_tasks_wherever_a_slot_may_open(c, s, a):
    """By a method of the instance. A task is queued if it is rootish and no worker is chosen."""
    plain, opened = s.stimulus_queue_slots_maybe_opened, []
    busy = c.map(wait_for, ["go"] * 2, pure=False)
    await state_of(s, busy[-1], "processing")
    s.is_rootish = lambda ts: True
    s.decide_worker_rootish_queuing_enabled = lambda: None
    s.stimulus_queue_slots_maybe_opened = lambda **kwargs: opened.append(kwargs)
    future = c.submit(inc, 1)
    await state_of(s, future, "queued")
    assert s.tasks[future.key] in s.queued and s.tasks[future.key]._queueable
    opened.clear()
    await let_end(c, busy)
    assert {"stimulus_id"} == opened[-1].keys()
    del s.is_rootish, s.decide_worker_rootish_queuing_enabled, s.stimulus_queue_slots_maybe_opened
    plain(stimulus_id="test")
    assert await future == 2


@gen_cluster(client=True, nthreads=[1])
async def test_a_long_running_task_that_is_added_again_counts_as_any_other(c, s, a):
    future = await begun(s, c.submit(wait_for, "go", 1, key="k"))
    ws, ts = s.workers[a.address], s.tasks["k"]
    prefix = ts.prefix.name
    assert ws.task_prefix_count[prefix] == 1
    ws.add_to_long_running(ts)
    assert ts in ws.long_running and ts in ws.processing
    assert not ws.task_prefix_count.get(prefix) and ws.occupancy == s.total_occupancy == 0
    ws.remove_from_processing(ts)
    ws.add_to_processing(ts)
    assert ts not in ws.long_running and ts in ws.processing
    assert ws.task_prefix_count[prefix] == 1 and ws.occupancy == s.total_occupancy > 0
    s.check_idle_saturated(ws)
    assert await let_end(c, future) == 1
    assert not ws.task_prefix_count.get(prefix) and s.total_occupancy == 0


@gen_cluster(client=True, nthreads=[1])
async def test_periodic_checks_are_made_four_times_a_second_and_not_all_at_once(c, s, a):
    """So whoever does something five times a second comes between any two of them."""
    for name in ("no-workers-timeout", "idle-timeout"):
        assert s.periodic_callbacks[name].callback_time == 250


@gen_cluster(client=True, nthreads=[1])
async def test_a_cluster_is_idle_since_a_time_that_may_be_forgotten(c, s, a):
    s.periodic_callbacks["idle-timeout"].stop()
    await until(s.check_idle)  # once it has seen that no task moves any more
    s.idle_timeout = 1e-9
    s.idle_since = None
    since = s.check_idle()
    assert since is not None and s.idle_since == since  # it begins to count, and closes later
    await asyncio.sleep(0)
    assert s.status == Status.running
    s.idle_timeout = None


@gen_cluster(client=True, nthreads=[1])
async def test_a_worker_knows_the_tasks_of_its_threads(c, s, a):
    """A thread without a task is in nobody's; who waits may take its own out, and put it back."""

    def look():
        worker, ident = get_worker(), threading.get_ident()
        with worker.active_threads_lock:
            key = worker.active_threads.pop(ident)
        with worker.active_threads_lock:
            worker.active_threads[ident] = key
        return key

    assert await c.submit(look, key="k") == "k"
    assert threading.get_ident() not in a.active_threads


def pool_of_thread():
    return thread_state.executor


@gen_cluster(client=True, nthreads=[1])
async def test_a_thread_that_has_left_its_pool_takes_the_place_of_the_next_that_is_free(c, s, a):
    def leave():
        pool, thread, event = pool_of_thread(), threading.current_thread(), threading.Event()
        there = [thread in pool._threads]
        secede()
        there.append(thread in pool._threads)
        with pool._rejoin_lock:
            pool._rejoin_list.append((thread, event))
        pool.submit(lambda: None)
        event.wait()
        return [*there, thread in pool._threads], pool._shutdown

    assert await c.submit(leave) == ([True, False, True], False)


@gen_cluster(client=True, nthreads=[1, 1])
async def test_work_stealing_tells_what_it_asks_for_and_then_what_has_moved(c, s, a, b):
    """By events, while it asks for a task, and once the thief is sent it. It keeps its priority."""
    stealing, told = s.extensions["stealing"], []

    def hear(topic, msg):
        if topic == "stealing":
            told.append((msg[0], set(stealing.in_flight)))
            if msg[0] == "request":
                for ts in stealing.in_flight:
                    ts.priority = (-9, *ts.priority)
            elif msg[0] == "confirm":
                at[msg[1]] = s.tasks[msg[1]].processing_on.address

    at = {}
    hook(s, "log_event", hear)
    s.periodic_callbacks["stealing"].stop()
    some = c.map(wait_for, ["go"] * 9, pure=False, workers=[a.address], allow_other_workers=True)
    await until(lambda: len(s.workers[a.address].processing) == 9)
    for future in some:
        s.tasks[future.key].worker_restrictions = None
    s.task_prefixes["wait_for"].duration_average = 5
    stealing.balance()
    ((what, asked),) = told
    assert what == "request" and asked
    await until(lambda: not stealing.in_flight)
    await until(lambda: at and at.keys() <= b.state.tasks.keys())
    assert {what for what, _ in told} <= {"request", "confirm", "already-computing"}
    assert at.keys() <= {ts.key for ts in asked} and set(at.values()) == {b.address}
    for key in at:
        assert b.state.tasks[key].priority[0] == -9
    await let_end(c, some)


@gen_cluster(client=True, nthreads=[1], config={"distributed.scheduler.allowed-failures": 1})
async def test_a_death_counts_once_against_each_task_of_the_worker_and_is_then_compared(c, s, a):
    futures = await begun(s, c.map(wait_for, ["never"] * 2, range(2), pure=False))
    first, second = (s.tasks[future.key] for future in futures)
    second.suspicious = 1
    await s.remove_worker(a.address, stimulus_id="test", close=False)
    assert (first.suspicious, second.suspicious) == (1, 2)
    assert (first.state == "erred", second.state) == (False, "erred")
    await Event("never").set()


@gen_cluster(client=True, nthreads=[1])
async def test_workers_measure_their_memory_and_heartbeats_tell_when_they_came(c, s, a):
    assert a.monitor.get_process_memory() > 0
    ws = s.workers[a.address]
    before = ws.last_seen
    await c.submit(inc, 1)
    await a.heartbeat()
    assert ws.last_seen > before
    assert 0 < ws.memory.optimistic <= ws.memory.process


@gen_cluster(client=True, nthreads=[1, 1])
async def test_the_scheduler_says_under_all_which_worker_or_client_leaves(c, s, a, b):
    heard = []

    def hear(topic, msg):
        if topic == "all" and msg["action"].startswith("remove-"):
            heard.append((msg.get("worker") or msg.get("client"), msg.get("expected")))

    hook(s, "log_event", hear)
    await c.retire_workers([b.address])
    await a.close()
    async with another_client(s) as other:
        pass
    await until(lambda: (other.id, None) in heard)
    assert heard[:2] == [(b.address, True), (a.address, False)]
