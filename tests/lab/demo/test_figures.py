"""The demo computes its figures correctly from handmade runs, and shows them."""

import pytest

from dask_slaq.lab.demo import local, many_tasks, report, search
from dask_slaq.lab.demo.local import DemoRun, DemoTraining, Options

START = 1000.0


def run(way: str, every: float, *curves: tuple[float, ...]) -> DemoRun:
    """Trainings that arrive one a second, and report each `every` seconds from then on."""
    trainings = []
    for number, losses in enumerate(curves):
        times = [START + number + every * k for k in range(len(losses))]
        curve = list(zip(times, losses, strict=True))
        spans = [("tcp://a", START, START + 1)]
        trainings.append(
            DemoTraining(f"{number + 1:02} <b>", curve, spans, START + number, times[-1])
        )
    return DemoRun(way, trainings, START)


FALLING = (10.0, 5.0, 1.0, 0.6, 0.2, 0.0)


def test_the_best_five_are_ready_when_the_last_of_them_is():
    found = search.measure(run("plain", 1.0, *((10.0 - n, 5.0 + abs(n - 2)) for n in range(7))))
    assert found["best_s"] == 3.0
    assert found["top5_s"] == 5.0
    assert found["all_s"] == 7.0
    assert list(found["models"].values()) == [5.0, 6.0, 6.0, 7.0, 7.0, 8.0, 9.0]


def test_the_verdict_says_when_nothing_was_gained():
    def verdict(every: float, losses: tuple[float, ...]) -> str:
        runs = [run("plain", 2.0, FALLING), run("search", every, losses)]
        return search.verdict(local.figures_of(runs, search.measure))

    assert "after 0.50 of the time, and 0.50 for all" in verdict(1.0, FALLING)
    assert "Nothing was gained" in verdict(2.0, FALLING)
    assert "Not every model" in verdict(1.0, FALLING[:-1])


def test_times_of_a_job_count_from_its_arrival():
    found = many_tasks.measure(
        run("fair", 2.0, FALLING, FALLING), {"01 <b>": 0.0, "02 <b>": 0.0}, 3
    )
    assert found["t90_mean_s"] == pytest.approx(4.0)
    assert found["t95_mean_s"] == pytest.approx(8.0)
    assert found["makespan_s"] == pytest.approx(11.0)
    assert found["jobs"][1]["completion_s"] == pytest.approx(10.0)


def test_a_job_that_did_not_get_there_has_no_time():
    found = many_tasks.measure(
        run("fair", 1.0, FALLING[:3], (1.0,)), {"01 <b>": 0.0, "02 <b>": 0.0}, 3
    )
    assert found["jobs"][0]["t90_s"] == pytest.approx(2.0)
    assert found["jobs"][0]["t95_s"] is None
    assert found["t95_mean_s"] is None


def test_jobs_say_when_nothing_was_gained():
    figures = {"t90_mean_s": 3.0}
    said = many_tasks.verdict({"fair": figures, "max-total": figures})
    assert "Nothing was gained. Jobs were at 90 % after 1.00 of the time" in said
    assert "after 0.50" in many_tasks.verdict({"fair": figures, "new": {"t90_mean_s": 1.5}})


def test_the_comparison_has_times_and_their_ratio():
    figures = {"fair": {"t_s": 4.0, "u_s": 2.0}, "new": {"t_s": 1.0, "u_s": None}}
    assert local.compare(figures, {"t_s": "one", "u_s": "other"}) == [
        ["", "fair", "new", "ratio"],
        ["one", "4.0 s", "1.0 s", "0.25"],
        ["other", "2.0 s", "-", ""],
    ]


@pytest.mark.parametrize("ranked", [True, False])
def test_the_report_is_one_file_that_shows_all(ranked):
    ways = ("none", "search", "search", "none")
    runs = [run(way, 1.0, FALLING, FALLING[:2]) for way in ways]
    found = local.Result("a < b", runs, {}, {}, "No < gain", ranked)
    page = report.page(found, [["", "plain"], ["time", "1 s"]])
    assert page.count('"name":"Figure"') == 8 + ranked
    for text in ("plain Dask, first", "search, first", "search, second", "plain Dask, second"):
        assert f"Loss: {text}" in page and f"Who had which thread: {text}" in page
    assert "No &lt; gain" in page.replace("&amp;", "&") or "No \\u0026lt; gain" in page


def test_a_line_now_and_then_and_at_the_end(monkeypatch, capsys):
    shown, looks = DemoRun("search", [DemoTraining("ended", done=2.0), DemoTraining("goes on")]), []

    def later(seconds):
        looks.append(seconds)
        if len(looks) == 3:
            shown.trainings[1].done = 2.0

    monkeypatch.setattr(local, "sleep", later)
    local.watch(shown)
    first, last = capsys.readouterr().out.splitlines()  # and nothing in between
    assert "1 of 2 done" in first and "2 of 2 done" in last


def test_work_fills_the_time_of_all_workers():
    options = Options(count=10, steps=10, seconds=50.0)
    assert options.copies([0.1, 0.1]) == 10
    assert options.copies([0.1, 0.3], tasks=5) == 1
    assert options.copies([1e3, 1e3]) == 1
