"""The scheduler tells owners of alerts without a client; what hangs or fails touches nothing."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from distributed.utils_test import captured_logger, inc
from driving import ONE, gen_cluster, jobs, start_plugin, until

import dask_slaq as slaq
from dask_slaq.client.connection import request
from dask_slaq.core.errors import NotAllowed
from dask_slaq.core.notice_terms import check_notify
from dask_slaq.scheduler import notices

SECRET = "token-4711"


@contextlib.contextmanager
def server(status=200):
    """A web server: its address, with a secret, and the notices that it got."""
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Content-Type"], self.path, json.loads(body)))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args):
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/{SECRET}", got
    finally:
        httpd.shutdown()
        thread.join()
        httpd.server_close()


@gen_cluster(client=True, nthreads=ONE)
async def test_a_webhook_is_told_how_a_job_ended(c, s, a):
    with server() as (url, got), server() as (other, others):
        notify = {
            "ann": {"webhook": url},
            "default": {"webhook": other, "events": ["failed", "fell back", "audit"]},
        }
        plugin = await start_plugin(c, s, notify=notify)
        async with slaq.job("a", owner="ann@desk", client=c) as job:
            job.report(0.5)
        await until(lambda: got)
        (kind, path, notice), *more = got
        assert (kind, path, more) == ("application/json", f"/{SECRET}", [])
        assert notice["message"] == notice["text"]
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
        assert [notice["event"] for _, _, notice in others] == ["failed", "audit", "fell back"]
        status = str(await slaq.status(c))
        assert SECRET not in status + repr(plugin.settings) + repr(plugin.settings.notify)


@gen_cluster(client=True, nthreads=ONE)
async def test_who_asks_names_nobody_to_tell(c, s, a):
    """Anybody may say to be ann; what certificates say is in `test_identity`."""
    with server() as (url, got), server() as (other, others):
        audits = {"events": ["audit"]}
        notify = {"ann": {"webhook": url, **audits}, "default": {"webhook": other, **audits}}
        await start_plugin(c, s, notify=notify, operators=["root"])
        for by in ("ann", "ann@desk", "team/ann"):
            with pytest.raises(NotAllowed):
                await request(c, "slaq_policy", policy="fair", by=by)
        await until(lambda: len(others) == 3)
        assert [notice["owner"] for _, _, notice in others] == [""] * 3
        assert got == []


@gen_cluster(client=True, nthreads=ONE)
async def test_a_command_gets_the_alert_as_data(c, s, a):
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "told"
        code = "import os, sys; print(os.environ['SLAQ_JOB'], sys.stdin.read(), file=open(%r, 'w'))"
        await start_plugin(
            c, s, notify={"default": {"command": [sys.executable, "-c", code % str(path)]}}
        )
        name = "$(touch x); 'job'"
        async with slaq.job(name, client=c):
            pass
        await until(lambda: path.exists() and path.read_text().endswith("\n\n"))
        assert path.read_text().startswith(name)
        assert json.loads(path.read_text().removeprefix(name))["event"] == "done"


@pytest.mark.parametrize(
    "what", ["status 500", "code 3", "No such file", "refused", "no answer", "dropped"]
)
def test_what_fails_or_hangs_is_logged_once_and_touches_nothing(what, monkeypatch):
    monkeypatch.setattr(notices, "TIMEOUT", 0.2 if what in ("no answer", "dropped") else 10)
    if what == "dropped":
        monkeypatch.setattr(notices, "MOST_WAITING", 1)

    @gen_cluster(client=True, nthreads=ONE)
    async def test(c, s, a):
        with server(500) as (broken, _), socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            terms = {
                "status 500": {"webhook": broken},
                "code 3": {"command": f"{sys.executable} -c 'exit(3)' {SECRET}"},
                "No such file": {"command": f"/nowhere/{SECRET}"},
                "refused": {"webhook": f"http://127.0.0.1:1/{SECRET}"},
            }.get(what, {"webhook": f"http://127.0.0.1:{port}/{SECRET}"})
            with server() as (url, got), captured_logger("dask_slaq.scheduler.notices") as log:
                notify = {"ann": terms, "bob": {"webhook": url}}
                plugin = await start_plugin(c, s, notify=notify)
                for n in range(8):
                    async with jobs(c, f"a-{n}", owner="ann"):
                        assert await c.submit(inc, n, pure=False) == n + 1
                async with jobs(c, "b", owner="bob"):
                    pass
                await until(lambda: got)  # one that hangs keeps no other waiting
                await until(lambda: log.getvalue())
                await plugin.close()
                assert plugin.failed is None
            lines = log.getvalue().splitlines()
            assert len(lines) == 1 and " of ann failed, " in lines[0]
            assert what in lines[0]
            assert SECRET not in log.getvalue()

    test()


@gen_cluster(client=True, nthreads=ONE)
async def test_a_scheduler_that_closes_waits_a_moment_for_the_last_notice(c, s, a):
    with server() as (url, got):
        plugin = await start_plugin(c, s, notify={"default": {"webhook": url}})
        async with slaq.job("a", client=c):
            pass
        await plugin.close()
        assert [notice["event"] for _, _, notice in got] == ["done"]


@gen_cluster(client=True, nthreads=ONE)
async def test_events_that_others_make_up_are_told_nobody(c, s, a):
    with server() as (url, got):
        plugin = await start_plugin(c, s, notify={"default": {"webhook": url}})
        for event in (1, {"event": ["done"]}, {"event": "done", "owner": ["a"], "loss": b"x"}):
            s.log_event("slaq", event)
        async with slaq.job("a", client=c) as job:
            job.report(0.5)
        await until(lambda: got)
        assert [notice["event"] for _, _, notice in got] == ["done"]
        assert plugin.failed is None


@pytest.mark.parametrize(
    ("owner", "told"),
    [
        ("bob", "bob"),
        ("bob@desk", "bob"),
        ("physics/bob", "bob"),
        ("physics/bob@desk", "bob"),
        ("physics/eve", "physics"),
        ("physics/optics/eve", "physics"),
        ("physics", "physics"),
        ("carol", "default"),
        ("", "default"),
    ],
)
def test_members_of_teams_are_told_as_themselves_or_as_their_team(owner, told):
    ways = {name: {"command": ["true"]} for name in ("bob", "physics", "default")}
    some, seen = notices.Notices(check_notify(ways)), []
    some._send = lambda name, *rest: seen.append(name)
    some.tell({"event": "done", "owner": owner})
    assert seen == [told]
