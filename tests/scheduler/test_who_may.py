"""Nobody acts for another: the client of a message is that of its connection, whatever it says."""

import asyncio
import contextlib
import itertools
from unittest import mock

import dask
import pytest
from distributed import get_client, secede, worker_client
from distributed.comm import connect
from distributed.utils_test import captured_logger, inc
from driving import (
    alerts_of,
    another_client,
    asked_to_stop,
    begun,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    name_a_task,
    on_virtual,
    running,
    start_plugin,
    state_of,
    until,
    wait_for,
    with_plugin,
)
from hypothesis import given
from hypothesis import strategies as st

import dask_slaq as slaq
from dask_slaq.core.errors import NoPlugin, NotAllowed
from dask_slaq.core.settings import ALERT_TOPIC, AUDIT_TOPIC
from dask_slaq.scheduler.requests import handlers

EMPTY = "status history bindings usage audit ended workers follow reservations"
#: What somebody may say in requests and messages about job "a" of another client.
REQUESTS = {
    "slaq_close": {"name": "a"},
    "slaq_steer": {"job": "a", "what": "stop"},
    "slaq_open": {"name": "a"},
    "slaq_introduce": {"owner": "eve"},
    "slaq_policy": {"policy": "max-min"},
    "slaq_owner": {"owner": "ann", "max_threads": 1},
    "slaq_limit": {"label": "a", "most": 1},
    "slaq_reserve": {"owner": "eve", "threads": 9, "begin": 0, "end": 1e9},
    "slaq_unreserve": {"number": 1},
    "slaq_left": {"run": "x"},
    "slaq_trials": {"run": "x"},
    "slaq_train_on": {"run": "x", "keys": None, "best": 1, "steps": 1},
    "slaq_explain": {"job": "a"},
    **{f"slaq_{name}": {} for name in EMPTY.split()},
    "slaq_models": {"search": "a"},
    "slaq_whatif": {"workers": 4},
}
MESSAGES = {
    "slaq-report": {"job": "a", "loss": -1e6},
    "slaq-expect": {"job": "a", "iterations": 1},
    "slaq-kind": {"job": "a", "kind": "eves"},
    "slaq-enter": {"job": "a"},
    "slaq-leave": {"job": "a", "failed": True, "outcome": "failed"},
    "slaq-mark": {"job": "a", "number": 5},
    "slaq-trial": {"key": "x", "what": "waits", "losses": [1.0], "computed": 1e6, "waited": 0.0},
    "slaq-prove": {"proof": "x" * 32},
}
EVERYTHING = {**REQUESTS, **MESSAGES}
OWN, OTHERS, WORKERS = "own", "other's", "worker's"
CLAIMS = (OWN, OTHERS, "", "unknown", WORKERS, None, 3, ["b"], {"a": 1}, b"x", "x" * 999)


def test_every_handler_is_attacked():
    known = {f"slaq_{name}" for name in handlers.REQUESTS}
    known |= {f"slaq-{name}" for name in handlers.MESSAGES}
    assert known <= EVERYTHING.keys()


async def attack(eve, victim, worker, operation, message, claim):
    """Send a request or message of `eve` that claims to be somebody else's."""
    people = {OWN: eve.id, OTHERS: victim.id, WORKERS: worker}
    if isinstance(claim, str):
        claim = people.get(claim, claim)
    if operation in MESSAGES:
        eve._send_to_scheduler({"op": operation, **message, "client": claim, "worker": worker})
    else:
        with contextlib.suppress(Exception):
            await getattr(eve.scheduler, operation)(**message, client=claim)


def seen_of(plugin):
    """All that others could have changed of job "a"."""
    jobs = plugin.jobs
    if "a" not in jobs.reports:
        return "job a has ended"
    job, sets = inside(plugin).job("a"), (jobs.stopping, jobs.paused, jobs.queued)
    state = (
        [name for each in sets for name in each],
        plugin.run_history.kind_name("a"),
        jobs.entered,
    )
    rules = plugin.settings.policy, inside(plugin).terms, dict(inside(plugin).limits.most)
    counts = dict(jobs.reports), job.loss, job.max_iter, job.weight
    return jobs._runs["a"], *state, *rules, *counts, jobs.owner["a"], jobs.accounts.totals


@pytest.mark.parametrize("claim", [OWN, OTHERS, WORKERS, None])  # the next test has them all
@with_plugin([1], operators=["root"])
async def test_nobody_acts_for_another_whatever_the_message_says(c, s, plugin, a, claim):
    job = slaq.job("a", client=c, owner="ann", max_iter=99)
    with captured_logger("dask_slaq", propagate=False), captured_logger("distributed"):
        async with another_client(s) as eve, job:
            job.report(0.5)
            await until(lambda: inside(plugin).reports == {"a": 1})
            before, owner = seen_of(plugin), inside(plugin).clients.of(c.id)
            for operation, message in EVERYTHING.items():
                await attack(eve, c, a.address, operation, message, claim)
                assert await eve.submit(inc, 1, pure=False) == 2
                assert (seen_of(plugin), inside(plugin).clients.of(c.id)) == (before, owner), (
                    operation
                )


anything = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda some: st.lists(some, max_size=3) | st.dictionaries(st.text(), some, max_size=3),
    max_leaves=5,
)
arguments = {name for message in EVERYTHING.values() for name in message} | {"run", "by", "proof"}
attacks = st.tuples(
    st.sampled_from(sorted(EVERYTHING)),
    st.sampled_from(CLAIMS) | anything,
    st.dictionaries(st.sampled_from(sorted(arguments - {"by", "what"})), anything, max_size=3),
)


@given(some=st.lists(attacks, min_size=5, max_size=15))
@on_virtual([1], operators=["root"])
async def test_malformed_messages_change_nothing_of_others(client, cluster, plugin, some):
    with captured_logger("dask_slaq", propagate=False), captured_logger("distributed"):
        async with cluster.client() as eve, slaq.job("a", client=client, owner="ann") as job:
            job.report(0.5)
            await asyncio.sleep(1.0)
            before = seen_of(plugin)
            worker = cluster.workers[0].address
            for operation, claim, more in some:
                message = {**EVERYTHING[operation], **more}
                if operation in ("slaq_open", "slaq_left", "slaq_introduce"):
                    message.pop("proof", None)  # it would be waited for
                await attack(eve, client, worker, operation, message, claim)
            await asyncio.sleep(1.0)
            assert seen_of(plugin) == before
            assert eve.status == client.status == "running"
            for name in inside(plugin).reports.keys() - {"a"}:
                plugin.end_job(name)


huge = st.sampled_from([10**400, -(10**400), 1e308, "x" * 10**5, [[]] * 99, {"name": ["x"]}])
names = st.sampled_from(sorted(arguments | {"number", "run_id", "at"}))
own_messages = st.tuples(
    st.sampled_from(sorted(MESSAGES)), st.dictionaries(names, anything | huge), st.booleans()
)


@given(some=st.lists(own_messages, min_size=5, max_size=15))
@on_virtual([1])
async def test_no_message_makes_the_plugin_fall_back(client, cluster, plugin, some):
    with captured_logger("dask_slaq", propagate=False), captured_logger("distributed"):
        async with slaq.job("a", client=client), slaq.job("b", client=client) as job:
            worker = cluster.workers[0]
            for operation, more, by_worker in some:
                message = {"op": operation, **MESSAGES[operation], **more}
                if operation == "slaq-leave":
                    message["job"] = more.get("job", "b")
                if by_worker:
                    worker.batched_stream.send(message)
                else:
                    client._send_to_scheduler(message)
            await asyncio.sleep(2.0)
            plugin.run_once()
            assert client.status == "running" and worker.status.name == "running"
            job._lost = True


BAD = (None, 10**400, 2.5, "x\n", b"x", [], {}, ({},), {"a": [{}]}, {"GPU": 10**400})
MORE = {
    "slaq_owner": dict.fromkeys(("max_resources", "max_slowdown", "weight", "core_hours"), 1),
    "slaq_open": dict.fromkeys(
        ("resources", "max_slowdown", "kind", "within", "search", "by"), None
    ),
    "slaq_steer": {
        "job": "b",
        "what": "set",
        **dict.fromkeys(("max_slowdown", "target", "weight"), 1),
    },
}


@with_plugin([1])
async def test_no_malformed_argument_of_a_request_makes_the_plugin_fall_back(c, s, plugin, a):
    with captured_logger("dask_slaq", propagate=False):
        async with slaq.job("b", client=c):
            proof = next(p for p, of in inside(plugin).proofs.items() if of.client == c.id)
            for operation, some in REQUESTS.items():
                comm, given = s.client_comms[c.id].comm, some | MORE.get(operation, {})
                for name, bad in itertools.product(given, BAD):
                    with contextlib.suppress(TypeError):  # nothing is changed
                        await s.handlers[operation](comm, proof=proof, **{**given, name: bad})
                    assert plugin.failed is None, (operation, name, bad)
                for name in inside(plugin).reports.keys() - {"b"}:
                    plugin.end_job(name)


@with_plugin([1])
async def test_the_name_of_another_client_gives_no_say_in_its_jobs(c, s, plugin, a):
    async with slaq.job("a", client=c) as job:
        comm = await connect(s.address)
        await comm.write({"op": "register-client", "client": c.id, "reply": False, "versions": {}})
        await comm.read()
        with captured_logger("dask_slaq", propagate=False) as log:
            for loss in (-1.0, -2.0):
                await comm.write([{"op": "slaq-report", "job": "a", "loss": loss}])
            await comm.write([{"op": "slaq-leave", "job": "a"}])
            await until(lambda: inside(plugin).dropped)
            taken = s.client_comms[c.id].comm
            assert plugin.task_pools._job_of(c.id, {"slaq_job": "a"}, taken) is None
            job.report(1.0)
            await until(lambda: inside(plugin).reports == {"a": 1})
        assert "another client's" in log.getvalue()
        assert inside(plugin).job("a").loss == 1.0
        await comm.close()


@with_plugin([1])
async def test_tasks_belong_to_the_client_that_submits_them(c, s, plugin, a):
    async with another_client(s) as eve, slaq.job("a", client=c):
        send, as_another = eve._send_to_scheduler, {"client": c.id}
        eve._send_to_scheduler = lambda m: send(m | as_another if m["op"] == "update-graph" else m)
        future = in_job(eve, "a").submit(inc, 1, key="theirs")
        await state_of(s, future, "memory")
        assert inside(plugin).bindings[-1].job == f"other:{eve.id}"
        eve._send_to_scheduler = send
        s.client_releases_keys(["theirs"], c.id, "test")
        del future


@with_plugin([4], owners={"ann": {"max-threads": 1}, "eve": {"max-threads": 2}})
async def test_a_graph_is_paid_for_by_the_client_that_sends_it(c, s, plugin, a):
    """Whatever task it names, unless it is on the machine of that; keys can be read by anybody."""
    async with another_client(s) as eve, jobs(c, "a", "other", owner="ann"):
        inside(plugin).clients.introduce(eve.id, "eve")
        mine = await begun(s, in_job(c, "a").submit(wait_for, "go", key="running"))
        name_a_task(eve, "running")
        with mock.patch.object(plugin.task_pools, "_alike", lambda *comms: False):
            theirs = [eve.submit(wait_for, "theirs", k, pure=False) for k in range(4)]
            await until(lambda: f"other:{eve.id}" in inside(plugin).pools)
            await until(lambda: len(inside(plugin).pool(f"other:{eve.id}").tasks) == 4)
            await until(lambda: running(plugin, f"other:{eve.id}") == 2)
        assert {inside(plugin).pool_of[future.key].owner for future in theirs} == {"eve"}
        await let_end(eve, theirs, "theirs")
        await let_end(c, mine)


@with_plugin([1])
async def test_a_worker_reports_on_its_own_stream_alone(c, s, plugin, a):
    async with slaq.job("a", client=c):
        with captured_logger("dask_slaq", propagate=False) as log:
            c._send_to_scheduler({"op": "slaq-trial", "key": "x", "worker": a.address})
            await until(log.getvalue)
            for op in ("slaq-enter", "slaq-leave", "slaq-expect", "slaq-prove"):
                a.batched_stream.send({"op": op, "job": "a", "client": c.id, "proof": "x" * 32})
            a.batched_stream.send({"op": "slaq-report", "job": "a", "loss": 1.0, "client": c.id})
            await until(lambda: inside(plugin).reports == {"a": 1})
            assert "only workers tell what trials do" in log.getvalue()


@with_plugin([1])
async def test_a_client_without_a_proof_is_told_to_be_of_an_older_release(c, s, plugin, a):
    for ask in (c.scheduler.slaq_open, c.scheduler.slaq_close):
        with pytest.raises(NotAllowed, match="runs an older release of dask_slaq"):
            await ask(name="a", client=c.id)
    with pytest.raises(NotAllowed, match="none of a connected client"):
        await c.scheduler.slaq_open(name="a", client=c.id, proof=["x"])


@with_plugin([1])
async def test_a_scheduler_of_an_older_release_is_told_to_be_one(c, s, plugin, a):
    s.task_metadata["slaq"].pop("proof")
    with dask.config.set({"slaq.require-plugin": True}), pytest.raises(NoPlugin, match="older"):
        await slaq.job("a", client=c).__aenter__()
    with captured_logger("dask_slaq", propagate=False) as log:
        async with slaq.job("a", client=c) as job:
            job.report(1.0)
    assert "jobs run under plain Dask: the scheduler at" in log.getvalue()
    assert c.status == "running"


@with_plugin([1])
async def test_nobody_sees_or_takes_the_proof_of_another(c, s, plugin, a, tmp_path):
    async with another_client(s) as eve, slaq.job("a", client=c):
        ((secret, sender),) = inside(plugin).proofs.items()
        assert sender.client == c.id and len(secret) == 32
        with captured_logger("dask_slaq", propagate=False) as log:
            await slaq.change("a", weight=2, client=c)
            eve._send_to_scheduler({"op": "slaq-prove", "proof": secret})
            await until(lambda: inside(plugin).dropped)
        assert inside(plugin).proofs == {secret: sender}
        shown = [
            log.getvalue(), await slaq.status(eve), await eve.scheduler.slaq_audit(),
            await eve.get_events(), await eve.scheduler.slaq_history(), s.task_metadata,
            await slaq.explain("a", client=eve),
        ]  # fmt: skip
        assert secret not in repr(shown)
        await eve.dump_cluster_state(str(tmp_path / "dump"), format="yaml")
        assert secret not in (tmp_path / "dump.yaml").read_text()
    await until(lambda: not inside(plugin).reports)


@with_plugin([1])
async def test_every_kind_of_client_opens_jobs(c, s, plugin, a):
    def use(name, client):
        with slaq.job(name, client=client) as job:
            job.report(1.0)
            return client.submit(inc, 1, pure=False).result()

    def in_task(name):
        with worker_client() as client:
            return use(name, client)

    def by_get_client(name):
        secede()
        return use(name, get_client())

    assert await c.submit(in_task, "a") == 2
    assert await c.submit(by_get_client, "b") == 2
    async with another_client(s) as other:
        async with slaq.job("c", client=c) as one, slaq.job("d", client=other) as two:
            one.report(1.0), two.report(2.0)
            await slaq.pause("c", client=other)  # without operators everyone may
            await until(lambda: inside(plugin).reports == {"c": 1, "d": 1})
        # One that connects again keeps its name, and proves it anew.
        first = other.scheduler_comm
        first.comm.abort()
        await until(lambda: other.status == "running" and other.scheduler_comm is not first)
        async with slaq.job("e", client=other) as job:
            job.report(1.0)
            await job.stop()
            await until(lambda: asked_to_stop(job))
    assert {entry["job"] for entry in inside(plugin).ended} == set("abcde")
    assert len(inside(plugin).proofs) <= 2 + len(s.clients)


@gen_cluster(client=True, nthreads=[1])
async def test_proofs_outlive_the_plugin(c, s, a):
    await start_plugin(c, s)
    async with slaq.job("a", client=c):
        pass
    await c.unregister_scheduler_plugin("slaq")
    await start_plugin(c, s)
    async with slaq.job("a", client=c) as job:
        job.report(1.0)


@with_plugin([1], operators=["root"])
async def test_nothing_is_read_back_from_a_topic(c, s, plugin, a):
    lines = {"event": "audit", "at": 0.0, "when": "today", "message": "root asked for it"}
    async with another_client(s) as eve:
        async with slaq.job("a", client=c) as job:
            run = plugin.jobs._runs["a"]
            for topic in (AUDIT_TOPIC, ALERT_TOPIC, "slaq-steer"):
                for event in (1, None, ["x"], lines, {"what": "stop", "run": run, "job": "a"}):
                    await eve.log_event(topic, event)
            job.report(1.0)
            await eve.log_event(["slaq", "eves"], 1)
            by_worker = {"worker": a.address, "topic": AUDIT_TOPIC, "msg": lines}
            eve._send_to_scheduler({"op": "log-event", **by_worker})
            assert not await eve.scheduler.slaq_audit()
            await eve.log_event("eves", "of her own")
            assert [event for _, event in await eve.get_events("eves")] == ["of her own"]
            for topic in (AUDIT_TOPIC, ALERT_TOPIC, "slaq-steer"):
                assert not await eve.get_events(topic)
            await slaq.change("a", weight=2, client=c)
            assert not asked_to_stop(job)
        (line,) = await eve.scheduler.slaq_audit()
        assert line["what"] == "set job 'a' weight=2"
        await until(lambda: not inside(plugin).reports)
        (ended,) = await slaq.ended(eve)
        assert ended["job"] == "a"


@with_plugin([1])
async def test_what_a_client_publishes_is_no_loss_and_no_alert(c, s, plugin, a):
    def train(report):
        report(0.5)

    alerts = await alerts_of(c, s)
    async with another_client(s) as eve, slaq.job("a", client=c) as job:
        await c.submit(train, job.reporter())
        await until(lambda: inside(plugin).reports == {"a": 1})
        seen = await eve.get_events()
        ((topic, ((_, message),)),) = [e for e in seen.items() if e[0].startswith("slaq-loss")]
        lie = {"event": "done", "job": "a", "message": "a lie"}
        lies = [{**message, "loss": -1e6}, {**message, "number": 9}, message]
        lies += [{**message, "proof": proof} for proof in (None, 1, "", "\xe9", "0" * 64)]
        lies += [{**message, "inbox": inbox} for inbox in (None, ["x"], "x")]
        told = len(alerts)
        for where, what in [(topic, each) for each in lies] + [(ALERT_TOPIC, lie)]:
            await eve.log_event(where, what)
            a.log_event(where, what)  # as a task may
        await c.submit(train, job.reporter(), pure=False)
        await until(lambda: inside(plugin).reports == {"a": 2})
        assert inside(plugin).job("a").loss == 0.5
        assert len(alerts) == told
    await until(lambda: [alert["event"] for alert in alerts] == ["done"])
    assert alerts[0]["message"] != "a lie"


@with_plugin([1, 1], prefetch="1h")
async def test_what_a_client_publishes_as_dask_does_moves_no_task(c, s, plugin, a, b):
    """Dask tells by events of work stealing and of workers that pause: they say where to look."""
    async with another_client(s) as eve, slaq.job("a", client=c), slaq.job("b", client=c):
        futures = in_job(c, "a").map(wait_for, ["go"] * 6, range(6), pure=False)
        await until(lambda: inside(plugin).pool("a").running)
        keys = [future.key for future in futures]
        paused = {"action": "worker-status-change", "status": "paused"}
        odd = (None, 1, "request", [], ["confirm"], ["confirm", [1]], ["confirm", {}], [[], []])
        for event in (*odd, ["request", keys], ["request", 3], *(["confirm", k] for k in keys)):
            for topic in ("stealing", a.address):
                await eve.log_event(topic, event)
        await eve.log_event(a.address, paused)
        stealing = s.extensions.pop("stealing")
        await eve.log_event("stealing", ["request", keys])
        s.extensions["stealing"] = stealing
        await asyncio.sleep(0.05)
        inside(plugin).check()
        assert await let_end(c, futures) == list(range(6))
    assert not {ts.priority[0] for ts in s.tasks.values()} - {0}


@with_plugin([1])
async def test_no_event_of_a_client_or_nanny_decides_anything(c, s, plugin, a):
    astray = {"key": "x"}
    dies = {"action": "remove-worker", "worker": a.address}
    told = [("slaq-unowned", astray), ("worker-restart-memory", {"worker": a.address})]
    told += [("all", {"action": "remove-client", "client": c.id}), ("all", dies)]
    grid = slaq.search("grid", client=c, keep="1h")
    async with another_client(s) as eve, grid, slaq.job("a", client=c):
        warnings, searches = [], plugin.searches
        searches.follower._tell = lambda *args, **about: warnings.append(about)
        future = in_job(c, "a").submit(wait_for, "go", key="x")
        await until(lambda: "x" in inside(plugin).pool_of and s.tasks["x"].processing_on)
        searches.quotas._memory[a.address] = 0.9e9, 0.0, 10**9
        for topic, event in told:
            await eve.log_event(topic, event)
            await eve.log_event([topic], event)
            if topic != "slaq-unowned":
                a.log_event(topic, event)
        stray = {"op": "log-event", "worker": a.address, "topic": "slaq-unowned", "msg": astray}
        eve._send_to_scheduler(stray)
        queued = eve.submit(inc, 1)
        await until(lambda: queued.key in s.tasks)
        assert not warnings and not searches.quotas._dead
        assert [kept.gone for kept in searches.kept._kept.values()] == [None]
        a.log_event("slaq-unowned", {"key": "y"})
        a.log_event("slaq-unowned", astray)
        await until(lambda: warnings)
        assert [about["why"] for about in warnings] == ["job"]
        assert not s.get_events("slaq-unowned")
        assert await let_end(c, queued) == 2
        await future
