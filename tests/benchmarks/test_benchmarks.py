"""Curves, emulated jobs and metrics are correct, and small runs give the expected keys."""

import numpy as np
import pytest
from commands import as_json

from benchmarks import overhead
from benchmarks.common.curves import resample
from benchmarks.common.metrics import JobTrace, Run, ratios, summarize, table
from benchmarks.live_jobs.emulated import WORK, make_jobs
from benchmarks.live_jobs.real_fits import runner
from dask_slaq.lab.simulation.workload import curves


def test_a_curve_keeps_its_ends_and_its_values_when_squeezed():
    loss = np.geomspace(10, 1, 100)
    curve = curves.LossCurve("a", "a", loss, noisy=False)
    squeezed, stretched = resample(curve, 20), resample(curve, 150)
    assert squeezed[[0, -1]].tolist() == stretched[[0, -1]].tolist() == loss[[0, -1]].tolist()
    assert set(squeezed) <= set(loss)
    assert len(stretched) == 150 and (np.diff(stretched) <= 0).all()


@pytest.mark.parametrize("workload", ["staggered", "burst"])
def test_jobs_are_a_function_of_the_seed_and_every_seed_loads_alike(workload):
    made = curves.make_curves(0)
    one, same, other = (make_jobs(workload, made, seed) for seed in (1, 1, 2))
    assert all((a.seconds == b.seconds).all() for a, b in zip(one, same, strict=True))
    work = [sum(job.seconds.sum() for job in run) for run in (one, other)]
    assert work == pytest.approx([WORK] * 2, rel=0.02)
    assert len(one) >= 10 and one[0].arrival == 0
    assert all((job.reports == job.loss).all() for job in one)
    noisy = make_jobs(workload, made, 1, noise=0.01)
    assert all((job.reports != job.loss).any() for job in noisy)
    assert all((a.loss == b.loss).all() for a, b in zip(one, noisy, strict=True))


def trace(name, arrival, losses, completion):
    found = JobTrace(name, arrival, completion=completion)
    for k, loss in enumerate(losses):
        found.record(arrival + 1.0 + k, loss)
    return found


def test_time_to_90_percent_counts_from_arrival_and_by_the_running_minimum():
    job = trace("a", 5.0, [10, 6, 8, 0.9, 2, 0], 12.0)
    assert job.time_to(0.9) == 4.0
    assert job.time_to(0.95) == 6.0
    assert trace("b", 0.0, [1, 2, 3], 4.0).time_to(0.9) is None
    assert trace("c", 0.0, [], 4.0).time_to(0.9) is None


def test_summary_and_ratios():
    def figures(seconds):
        jobs = [trace("a", 0.0, [4, 0], seconds), trace("b", 1.0, [1, 1], seconds / 2)]
        return summarize([Run(0, jobs, 1000, 8.0, threads=2)])

    policies = {"none": figures(8.0), "fair": figures(10.0), "max-total": figures(8.8)}
    assert policies["none"]["makespan_s"] == 8.0
    assert policies["none"]["utilization"] == 0.5
    assert policies["none"]["t90_mean_s"] == 2.0  # of the job that made progress
    found = ratios(policies)
    assert found["max-total"]["makespan_over_none"] == pytest.approx(1.1)
    assert found["max-total"]["t90_over_best_baseline"] == 1.0
    assert "max-total" in table("x", policies)


# Whole benchmarks


@pytest.mark.slow
@pytest.mark.parametrize(
    "mix, rows, count, policy", [("dask-ml", 400, 12, "none"), ("nine", 1000, 10, "fair")]
)
def test_real_fits_report_their_losses(mix, rows, count, policy):
    run = runner(2, mix=mix, rows=rows, part=0.1, processes=False)(policy, 0)
    assert len(run.traces) == count
    for job in run.traces:
        assert len(job.losses) >= 3, job.name
        assert job.arrival < job.times[0] < job.completion
        assert min(job.losses) < job.losses[0]


@pytest.mark.slow
def test_overhead_gives_ratios(monkeypatch):
    monkeypatch.setattr(overhead, "CASES", {"0": (0, False), "10": (10, False)})
    found = as_json(overhead.main, "--tasks", "40", "--repetitions", "1")
    assert set(found["throughput_ratio"]) == {"0", "10"}
    assert all(ratio > 0 for ratio in found["throughput_ratio"].values())
    assert len(found["seconds"]["10"]["plugin"]) == 1
