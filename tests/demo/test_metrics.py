"""The demo computes its metrics correctly from handmade runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from dask_slaq.demo import metrics as compare
from dask_slaq.demo import report
from dask_slaq.demo import workload as jobs
from dask_slaq.demo.drivers import Record
from dask_slaq.demo.meters import Computation
from dask_slaq.demo.metrics import Run

START = 1000.0


def record(name: str, arrival: float, losses: list[float], every: float) -> Record:
    """A job that reports each `every` seconds from its arrival on."""
    training = jobs.Training(name, name, "classes", arrival, estimator=lambda: None)
    at = START + arrival
    times = [at + every * k for k in range(len(losses))]
    return Record(training, list(zip(times, losses, strict=True)), arrived=at, ended=times[-1])


def run(policy: str, every: float, losses: list[float]) -> Run:
    records = [record("a", 0.0, losses, every), record("b", 1.0, losses, every)]
    return Run(
        policy=policy,
        seed=3,
        threads=2,
        start=START,
        stop=max(r.ended for r in records),
        records=records,
        computations=[Computation("a", START, START + 1.0), Computation(None, START, START + 0.5)],
        bytes_moved=2_000_000,
    )


LOSSES = [10.0, 5.0, 1.0, 0.6, 0.2, 0.0]


@pytest.fixture
def runs() -> list[Run]:
    return [run("fair", 2.0, LOSSES), run("max-total", 1.0, LOSSES)]


def test_times_count_from_arrival_to_the_report_that_reached_it(runs):
    figures = compare.figures(runs)["policies"]
    assert figures["fair"]["t90_mean_s"] == pytest.approx(4.0)
    assert figures["fair"]["t95_mean_s"] == pytest.approx(8.0)
    assert figures["max-total"]["t90_mean_s"] == pytest.approx(2.0)
    assert figures["max-total"]["makespan_s"] == pytest.approx(6.0)
    assert figures["max-total"]["jobs"][1]["arrival_s"] == pytest.approx(1.0)


def test_the_lowest_loss_is_of_all_runs(runs):
    short = run("short", 1.0, LOSSES[:3])
    figures = compare.figures([*runs, short])["policies"]
    assert figures["short"]["jobs"][0]["t90_s"] == pytest.approx(2.0)
    assert figures["short"]["jobs"][0]["t95_s"] is None
    assert figures["short"]["t95_mean_s"] is None


def test_a_loss_that_rises_again_does_not_take_back_what_was_reached():
    curve = record("a", 0.0, [1.0, 0.0, 0.8], 1.0)
    assert compare.remaining(curve, 0.0) == pytest.approx([1.0, 0.0, 0.0])


def test_a_constant_loss_has_nothing_to_fall():
    assert compare.seconds_to(record("a", 0.0, [3.0, 3.0], 1.0), 0.9, 3.0) is None


def test_a_job_without_reports_has_no_times():
    assert compare.seconds_to(record("a", 0.0, [1.0], 1.0), 0.9, 0.0) is None
    silent = Record(jobs.Training("a", "a", "classes", 0.0, estimator=lambda: None))
    assert compare.seconds_to(silent, 0.9, 0.0) is None


def test_figures_are_json_with_the_agreed_keys(runs):
    policies = json.loads(json.dumps(compare.figures(runs)))["policies"]
    assert list(policies) == ["fair", "max-total"]
    for figures in policies.values():
        assert {"t90_mean_s", "t95_mean_s", "makespan_s", "bytes_moved", "jobs"} <= set(figures)
        for job in figures["jobs"]:
            assert {"name", "seed", "t90_s", "t95_s", "completion_s"} <= set(job)


def test_busy_is_the_computed_part_of_the_threads_time(runs):
    assert runs[1].busy == pytest.approx(1.5 / (2 * 6.0))


def test_table_shows_every_figure_and_the_change(runs):
    text = compare.table(compare.figures(runs))
    assert "mean time to 90 % loss reduction" in text
    assert "-50 %" in text
    assert "2 MB" in text


def test_threads_used_keeps_the_computed_seconds(runs):
    used = report.threads_used(runs[1], "a", 12)
    assert used.sum() * report.BIN == pytest.approx(1.0)
    assert used.max() <= 2


def test_report_is_one_file_that_names_all(runs):
    page = report.page(runs, compare.figures(runs))
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "<script" not in page
    for word in ("fair", "max-total", "time (s)", "threads", "90 % reached"):
        assert word in page
    assert page.count("<polyline") == 4


def test_names_are_escaped_in_the_report(runs):
    odd = [run("a<b", 1.0, LOSSES)]
    assert "a<b" not in report.page(odd, compare.figures(odd))


def test_plan_is_a_function_of_its_seed():
    def shown(plan):
        return [(t.name, t.arrival, t.estimator.keywords) for t in plan]

    assert shown(jobs.plan(9, 1)) == shown(jobs.plan(9, 1))
    assert shown(jobs.plan(9, 1)) != shown(jobs.plan(9, 2))


@pytest.mark.parametrize("mix", jobs.MIXES)
def test_plan_has_jobs_of_different_kinds_that_arrive_in_order(mix):
    plan = jobs.plan(12, 0, mix=mix)
    arrivals = [training.arrival for training in plan]
    assert arrivals[0] == 0.0
    assert np.all(np.diff(arrivals) > 0)
    assert len({training.name for training in plan}) == 12
    assert len({training.kind for training in plan}) >= 6
