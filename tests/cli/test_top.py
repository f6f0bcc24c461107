"""The live table, against a scheduler in another process and without a terminal."""

import asyncio

import dask
import pytest
from scheduler_process import free_port

import dask_slaq as slaq
from dask_slaq.cli.top.table import shortened
from dask_slaq.core.job_columns import rows

HOSTILE = "red <b>[bold]"  # as in conftest.py


def top(file, scenario, by="ann@desk", then=None, **options):
    """Run ``scenario(application, pilot)`` in the live table, without a terminal."""
    pytest.importorskip("textual")
    from dask_slaq.cli.connection import Where
    from dask_slaq.cli.top.app import Top

    async def run():
        app = Top(Where(scheduler_file=file), interval=60, **options)
        async with app.run_test(size=(120, 30)) as pilot:
            while app.status is None:
                await pilot.pause(0.02)
            await scenario(app, pilot)
        if then is not None:
            await then(app)

    with dask.config.set({"slaq.owner": by}):
        asyncio.run(run())


def shown(app, name):
    return str(app.query_one(name).render())


def ordered(app):
    return [row["job"] for row in app._ordered(list(rows(app.status["jobs"])))]


async def until(pilot, condition):
    while not condition():
        await pilot.pause(0.02)


def test_top_sorts_and_keeps_the_chosen_job(file, training):
    async def scenario(app, pilot):
        table = app.query_one("#jobs")
        assert table.row_count == 2 and app.job == "a"
        await pilot.press("r")
        assert table.cursor_row == 1 and app.job == "a"  # it moved, and is chosen still
        for _ in range(4):
            await pilot.press("greater_than_sign")
        assert [c.label.plain for c in table.ordered_columns][4] == "iteration ▼"
        assert [key.value for key in table.rows] == ["a", HOSTILE]
        await pilot.press("less_than_sign")
        assert app.sorted_by == 3

    top(file, scenario)


def test_top_explains_pauses_and_stops_after_a_question(file, training):
    def job():
        return slaq.status(training)["jobs"]["a"]["state"]

    async def scenario(app, pilot):
        await pilot.press("e")
        await until(pilot, lambda: "a (bob@lab)" in shown(app, "#explanation"))
        await pilot.press("p")
        await until(pilot, lambda: app.status["jobs"]["a"]["state"] == "paused")
        assert "a is paused" in shown(app, "#message")
        await pilot.press("p")
        await until(pilot, lambda: app.status["jobs"]["a"]["state"] != "paused")
        await pilot.press("s")
        question = "Stop a of bob@lab at its next report?"
        assert question in str(app.screen.query_one("Static").render())
        await pilot.press("n")
        await pilot.press("o", "s", "o")  # no job is seen, and none is stopped
        await app.refresh_status()
        assert app.status["jobs"]["a"]["state"] == "idle"
        await pilot.press("s", "y")
        await until(pilot, lambda: app.status["jobs"]["a"]["state"] == "stopping")

    top(file, scenario)


def test_top_shows_refusals_and_goes_on(file, training):
    async def scenario(app, pilot):
        await pilot.press("p")
        await until(pilot, lambda: "may not" in shown(app, "#message"))
        await app.refresh_status()
        assert "may not" in shown(app, "#message")
        app.address, before = f"tcp://127.0.0.1:{free_port()}", app.address
        app.where = type(app.where)(timeout=0.3)
        await app._disconnect()
        await app.refresh_status()
        assert "no scheduler answers" in shown(app, "#message")
        app.address, app.where = before, type(app.where)()
        await app.refresh_status()
        assert shown(app, "#message") == "" and app.query_one("#jobs").row_count == 2

    top(file, scenario, by="eve@desk")


def test_top_filters_by_job_and_owner(file, training):
    async def scenario(app, pilot):
        table = app.query_one("#jobs")
        jobs = dict(app.status["jobs"])
        jobs["pepper"] = {**jobs["a"], "owner": "eve@lab"}
        app.status["jobs"] = jobs

        def names():
            return {row.key.value for row in table.ordered_rows}

        app._show()
        await pilot.press("slash", *"epq")  # keys that would do other things
        await pilot.pause()
        assert shown(app, "#detail") == "no job matches the filter" and names() == set()
        assert not app.query_one("#pane").display
        await pilot.press("backspace", "enter")
        assert names() == {"pepper"} and app.job == "pepper" and table.has_focus
        await pilot.press("slash", "backspace", "backspace", *"VE@", "enter")
        await pilot.pause()
        assert names() == {"pepper"}  # by its owner
        app._show()
        assert names() == {"pepper"}
        await pilot.press("escape")
        await pilot.pause()
        assert names() == set(jobs) and not app.query_one("#filter").display
        await pilot.press("slash", "enter")
        assert table.has_focus and not app.query_one("#filter").display

    top(file, scenario)


def test_top_shows_the_whole_reason_of_the_chosen_job(file, training):
    async def scenario(app, pilot):
        jobs = app.status["jobs"]
        reason = "waits: " + " ".join(f"word-{n}" for n in range(60))
        jobs["a"] = {**jobs["a"], "reason": reason, "age": 7200.0}
        app._show()
        await pilot.pause()
        assert shown(app, "#detail") == f"a (bob@lab): {reason}"
        assert app.query_one("#detail").size.height >= 4  # it is wrapped
        await pilot.press("down")
        await pilot.pause()
        await pilot.press("e")
        assert not app.query_one("#detail").display  # the explanation says the same
        await pilot.press("e")
        assert shown(app, "#detail").startswith(f"{HOSTILE} (bob@lab): ")
        heading = [column.label.plain for column in app.query_one("#jobs").ordered_columns]
        at = heading.index("age")
        assert app.query_one("#jobs").get_row("a")[at].plain == "2.0 h"

    top(file, scenario)


def test_top_read_only_has_no_keys_that_steer(file, training):
    async def scenario(app, pilot):
        await pilot.press("p", "s", "y")
        await app.refresh_status()
        assert "paused" not in {job["state"] for job in app.status["jobs"].values()}
        assert not app.query_one("#message").display

    top(file, scenario, read_only=True)


def test_answers_after_the_end_are_dropped(file, training):
    async def scenario(app, pilot):
        await pilot.press("e")

    async def late(app):
        """Call what an answer or a key still calls while the application ends."""
        await app.on_data_table_row_highlighted()
        app._say("late")
        await app.refresh_status()
        await app._disconnect()

    top(file, scenario, then=late)


def test_top_with_two_hundred_jobs_writes_only_what_has_changed(file, training):
    async def scenario(app, pilot):
        table = app.query_one("#jobs")
        jobs = {f"job-{n:03}": {**app.status["jobs"]["a"], "loss": n % 5} for n in range(200)}
        app.status = {**app.status, "jobs": jobs}
        app._show()
        await pilot.press(*["greater_than_sign"] * 5)
        order = [key.value for key in table.rows]
        assert order[:2] == ["job-004", "job-009"]  # ties by name
        table.move_cursor(row=150)
        table.scroll_to(0, 140, animate=False)
        await pilot.pause()
        chosen, scroll = app.job, table.scroll_offset
        written = []
        update = table.update_cell
        table.update_cell = lambda *cell, **kwargs: (written.append(cell), update(*cell, **kwargs))
        app._show()
        assert written == []
        jobs = {**jobs, "job-007": {**jobs["job-007"], "loss": 3, "iteration": 99}}
        app.status["jobs"] = jobs
        app._show()
        await pilot.pause()
        assert {cell[:2] for cell in written} == {("job-007", "loss"), ("job-007", "iteration")}
        assert [row.key.value for row in table.ordered_rows] == ordered(app)
        assert (app.job, table.scroll_offset) == (chosen, scroll)
        # Jobs end and begin, also above the chosen one.
        jobs = {name: job for name, job in jobs.items() if name > "job-050"}
        app.status["jobs"] = {**jobs, "new": jobs["job-199"]}
        app._show()
        assert [row.key.value for row in table.ordered_rows] == ordered(app)
        assert app.job == chosen
        app.status["jobs"] = {"b": jobs["job-199"]}
        app._show()
        assert app.job == "b"
        app.status["jobs"] = {}
        app._show()
        assert app.job is None

    top(file, scenario)


def test_of_long_names_the_middle_is_cut():
    first, second = (shortened(f"gradient-boosting-on-the-census-{n}") for n in (12, 13))
    assert len(first) == 24 and first != second
    assert first.startswith("gradient-boo") and first.endswith("census-12")
    assert shortened("x" * 24) == "x" * 24
