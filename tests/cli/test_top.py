"""The live table, against a scheduler in another process, drawn at 160 columns."""

import asyncio
from contextlib import aclosing
from functools import partial

import pytest
from scheduler_process import free_port

from dask_slaq.cli.options import Where
from dask_slaq.cli.top import screen_of, screens

HOSTILE = "red <b>[bold]"  # as in conftest.py


def drawn(screen, width=160):
    console = pytest.importorskip("rich.console").Console(width=width)
    with console.capture() as text:
        console.print(screen)
    return text.get()


async def first(where, with_text="", job=None, text="", sort="job", owners=False):
    look = partial(screen_of, job=job, text=text, sort=sort, owners=owners)
    async with aclosing(screens(where, look, 0.01)) as seen:
        while with_text not in (shown := drawn(await anext(seen))):
            pass
        return shown


def top(file, **shown):
    return asyncio.run(first(Where(scheduler_file=file), **shown))


def test_top_shows_all_of_a_job_at_160_columns(file, training):
    text = top(file)
    assert text.startswith("policy ") and max(map(len, text.splitlines())) <= 160
    heading = text.splitlines()[2]
    for name in ("job", "owner", "state", "age", "iteration", "granted", "reason"):
        assert f" {name} " in heading
    assert HOSTILE in text  # no markup of users
    assert text.index(" a ") < text.index(HOSTILE)
    assert top(file, sort="iteration").index(" a ") < text.index(HOSTILE)


def test_top_filters_and_shows_owners(file, training):
    assert HOSTILE not in top(file, text="A ") and "no job to show" in top(file, text="nobody")
    assert HOSTILE in top(file, text="BOB@") and HOSTILE in top(file, text="[bold")
    assert "deserved" in top(file, owners=True)


def test_top_explains_a_job_and_goes_on_after_what_went_wrong(file, training):
    assert "a (bob@lab)" in top(file, job="a")
    assert top(file, job="b").startswith("no job named 'b'")

    async def lost_and_found():
        where = Where(scheduler_file=file)
        lost = Where(f"tcp://127.0.0.1:{free_port()}", timeout=0.3)
        assert (await first(lost)).startswith("no scheduler answers")
        seen, fails = [], iter([False, True, False])

        async def look(client):
            if next(fails):
                await client.close()
                raise OSError("gone")
            return "all is well"

        async with aclosing(screens(where, look, 0.01)) as all_screens:
            while len(seen) < 3:
                seen.append(drawn(await anext(all_screens)).splitlines())
        return seen

    before, between, after = asyncio.run(lost_and_found())
    assert before == after == ["all is well"] and between[-1] == "all is well"
    assert "gone" in between[0]
