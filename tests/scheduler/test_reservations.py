"""Reservations on a scheduler: what owners get meanwhile, over restarts, and by whom."""

import time
from datetime import datetime

import dask
import pytest
from driving import gen_cluster, in_job, inside, jobs, on_virtual, start_plugin, used_in, work

import dask_slaq as slaq
from dask_slaq.client.queries import span_of
from dask_slaq.core.errors import InvalidSetting, NotAllowed


@on_virtual([2] * 4)
async def test_an_owner_gets_what_is_reserved_or_lends_it(client, cluster, plugin):
    got = {}
    begin = time.time() + 12
    made = await slaq.reserve("ann", 6, begin, begin + 30, client=client)
    assert made["note"] is None
    async with jobs(client, "of ann", owner="ann@desk"), jobs(client, "of bob", owner="bob"):
        futures = {
            name: in_job(client, name).map(work, [0.5] * 400, pure=False, key=f"work-{name}")
            for name in ("of ann", "of bob")
        }
        for phase, seconds in (("before", 12), ("begin", 3), ("reserved", 15), ("lent", 8)):
            if phase == "lent":
                await client.cancel(futures.pop("of ann"))
            used = await used_in(plugin, seconds)
            got[phase] = {owner: used[owner] / seconds for owner in ("ann@desk", "bob")}
        await client.cancel(futures["of bob"])
    assert got["before"]["ann@desk"] == pytest.approx(4.0, abs=0.3)
    assert got["reserved"] == pytest.approx({"ann@desk": 6.0, "bob": 2.0}, abs=0.3)
    assert got["lent"]["bob"] > 7.5


def test_reservations_outlive_the_scheduler_and_are_the_operators(tmp_path):
    path, now, lives = str(tmp_path / "runs.db"), time.time(), []

    @gen_cluster(client=True, nthreads=[1, 1])
    async def life(c, s, a, b):
        plugin = await start_plugin(c, s, run_history=path, operators=["root"])
        with dask.config.set({"slaq.owner": "eve"}):
            with pytest.raises(NotAllowed):
                await slaq.reserve("eve", 1, now, now + 900, client=c)
            with pytest.raises(NotAllowed):
                await slaq.unreserve(1, client=c)
        with dask.config.set({"slaq.owner": "root"}):
            if not lives:
                made = await slaq.reserve("ann", 1, now, now + 900, client=c)
                assert (made["number"], made["note"]) == (1, None)
                made = await slaq.reserve("bob", 5, now + 60, now + 900, client=c)
                words = "6 threads are reserved in that time, and the cluster has 2 now"
                assert (made["number"], made["note"]) == (2, words)
            found = await slaq.reservations(client=c)
            both = [("ann", 1.0, True), ("bob", 5.0, False)]
            told = [(one["owner"], one["threads"], one["now"]) for one in found]
            assert told == both[len(lives) // 2 :]
            if len(lives) == 1:
                await slaq.unreserve(1, client=c)
            past = "must end in the future, not at 20..-..-.. ..:..:..: it is 20"
            with pytest.raises(InvalidSetting, match=past):
                await slaq.reserve("ann", 1, now - 900, now - 60, client=c)
            with pytest.raises(InvalidSetting, match="must end after it begins, not from 20"):
                await slaq.reserve("ann", 1, now + 900, now + 60, client=c)
            with pytest.raises(InvalidSetting, match="there is no reservation 9"):
                await slaq.unreserve(9, client=c)
        async with slaq.job("a", client=c, owner="ann"):
            plugin.run_once()
            assert (inside(plugin).terms is None) == bool(lives)  # of this moment are ann's only
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(now))
        words = f"reserve 1 threads for 'eve' from {when} to 20"
        assert any(words in line["message"] for line in plugin.audited)
        lives.append(plugin)

    for _ in range(3):
        life()


def test_times_of_a_day_are_the_next_ones():
    def at(*args):
        return datetime(2026, 11, *args).timestamp()

    evening = "18:00", "22:00"
    assert span_of(*evening, at(26, 9)) == (at(26, 18), at(26, 22))
    assert span_of(*evening, at(26, 20)) == (at(26, 18), at(26, 22))  # it has begun
    assert span_of(*evening, at(26, 23)) == (at(27, 18), at(27, 22))
    assert span_of("22:00", "6:00", at(26, 9)) == (at(26, 22), at(27, 6))
    assert span_of(None, "2026-11-30 06:30", 5.0) == (5.0, at(30, 6, 30))
    assert span_of(datetime(2026, 11, 3), 7e9, 5.0) == (at(3), 7e9)
    for wrong in ("soon", "25:00", "1:75", None, [3]):
        with pytest.raises(InvalidSetting, match="to must be a time such as 18:00"):
            span_of("18:00", wrong, 0.0)
