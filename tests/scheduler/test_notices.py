"""The scheduler tells owners of alerts without a client; what hangs or fails touches nothing."""

import contextlib
import subprocess
import threading
import urllib.error

import pytest
from distributed.utils_test import captured_logger, inc
from driving import TOLD, gen_cluster, jobs, start_plugin, tell, until, with_plugin

import dask_slaq as slaq
from dask_slaq.client.connection import request
from dask_slaq.core.errors import NotAllowed
from dask_slaq.core.notice_terms import check_notify
from dask_slaq.core.settings import ALERT_TOPIC
from dask_slaq.scheduler import notices

SECRET = "token-4711"


@gen_cluster(client=True, nthreads=[1])
async def test_a_sink_is_told_how_a_job_ended(c, s, a):
    notify = {"ann": tell(SECRET), "default": tell("others", "failed", "fell back", "audit")}
    got, others = TOLD[SECRET], TOLD["others"]
    plugin = await start_plugin(c, s, notify=notify)
    async with slaq.job("a", owner="ann@desk", client=c) as job:
        job.report(0.5)
    await until(lambda: got)
    (notice,) = got
    assert notice["text"] == notice["message"]
    assert notice["message"].startswith("a: ended after 1 iterations")
    told = {"event": "done", "job": "a", "owner": "ann@desk", "iteration": 1, "loss": 0.5}
    assert told.items() <= notice.items()
    assert {"seconds", "time"} < notice.keys()
    async with slaq.job("b", owner="bob", client=c):
        pass
    with contextlib.suppress(KeyError):
        async with slaq.job("c", owner="bob", client=c):
            raise KeyError
    await until(lambda: len(others) == 1)
    await slaq.set_policy("fair", client=c)
    await until(lambda: len(others) == 2)
    plugin.fall_back(ValueError("as it should"))
    await until(lambda: len(others) == 3)
    assert [notice["event"] for notice in others] == ["failed", "audit", "fell back"]
    status = str(await slaq.status(c))
    assert SECRET not in status + repr(plugin.settings) + repr(plugin.settings.notify)


@gen_cluster(client=True, nthreads=[1])
async def test_who_asks_names_nobody_to_tell(c, s, a):
    """Anybody may say to be ann; what certificates say is in `test_identity`."""
    notify = {"ann": tell("ann", "audit"), "default": tell("others", "audit")}
    await start_plugin(c, s, notify=notify, operators=["root"])
    for by in ("ann", "ann@desk", "team/ann"):
        with pytest.raises(NotAllowed):
            await request(c, "slaq_policy", policy="fair", by=by)
    await until(lambda: len(TOLD["others"]) == 3)
    assert [notice["owner"] for notice in TOLD["others"]] == [""] * 3
    assert TOLD["ann"] == []


FAILURES = {
    "HTTPError 500": urllib.error.HTTPError(SECRET, 500, SECRET, None, None),
    "CalledProcessError 3": subprocess.CalledProcessError(3, SECRET),
    "refused": urllib.error.URLError(ConnectionRefusedError(1, "refused", SECRET)),
    "KeyError": KeyError(SECRET),
}
ENOUGH = threading.Event()


def failing(notice, why):
    raise FAILURES[why]


def hanging(notice, why):
    assert ENOUGH.wait(300)


@pytest.mark.parametrize("what", [*FAILURES, "some are dropped", "cannot be used: TypeError"])
def test_what_fails_or_hangs_is_logged_once_and_touches_nothing(what, monkeypatch):
    path = f"{__name__}:failing(why={what!r})"
    if what == "some are dropped":
        monkeypatch.setattr(notices, "MOST_WAITING", 1)
        monkeypatch.setattr(notices, "AT_CLOSE", 0.1)
        path = f"{__name__}:hanging(why='')"
    elif what not in FAILURES:
        path = f"collections:deque(token={SECRET!r})"

    @gen_cluster(client=True, nthreads=[1])
    async def test(c, s, a):
        with captured_logger("dask_slaq.scheduler.notices") as log:
            notify = {"ann": {"call": path}, "bob": tell("bob")}
            plugin = await start_plugin(c, s, notify=notify)
            for n in range(8):
                async with jobs(c, f"a-{n}", owner="ann"):
                    assert await c.submit(inc, n, pure=False) == n + 1
            async with jobs(c, "b", owner="bob"):
                pass
            await until(lambda: TOLD["bob"])  # one that hangs keeps no other waiting
            await until(lambda: log.getvalue())
            await plugin.close()
            ENOUGH.set()
            assert plugin.failed is None
        (line,) = log.getvalue().splitlines()
        assert " of ann" in line and what in line
        assert SECRET not in line

    ENOUGH.clear()
    test()


@with_plugin([1], notify={"default": tell("last")})
async def test_a_scheduler_that_closes_waits_a_moment_for_the_last_notice(c, s, plugin, a):
    async with slaq.job("a", client=c):
        pass
    await plugin.close()
    assert [notice["event"] for notice in TOLD["last"]] == ["done"]


@with_plugin([1], notify={"default": tell("all")})
async def test_events_that_others_make_up_are_told_nobody(c, s, plugin, a):
    for event in (1, {"event": ["done"]}, {"event": "done", "owner": ["a"], "loss": b"x"}):
        s.log_event(ALERT_TOPIC, event)
    await c.log_event(ALERT_TOPIC, {"event": "failed", "owner": "ann", "message": "a lie"})
    async with slaq.job("a", client=c) as job:
        job.report(0.5)
    await until(lambda: TOLD["all"])
    assert [notice["event"] for notice in TOLD["all"]] == ["done"]


OWNERS = {
    "bob": ("bob", "bob@desk", "physics/bob", "physics/bob@desk"),
    "physics": ("physics/eve", "physics/optics/eve", "physics"),
    "default": ("carol", ""),
}


@pytest.mark.parametrize("told", OWNERS)
def test_members_of_teams_are_told_as_themselves_or_as_their_team(told):
    seen = []
    some = notices.Notices(check_notify({name: {"call": "driving:tell"} for name in OWNERS}))
    for name, way in some._ways.items():
        way.put = lambda notice, name=name: seen.append(name)
    for owner in OWNERS[told]:
        some.tell({"event": "done", "owner": owner})
    assert seen == [told] * len(OWNERS[told])
