"""The benchmark autoscale picks fair rivals, and its cluster counts worker-hours right."""

from dataclasses import replace
from functools import partial

import pytest

from benchmarks import virtual
from benchmarks.autoscale import running
from benchmarks.autoscale.__main__ import choose
from benchmarks.autoscale.elastic import Elastic
from benchmarks.autoscale.lists import LISTS, THREADS
from benchmarks.autoscale.running import Way
from dask_slaq.core.scaling_terms import ScalingTerms
from dask_slaq.simulation.autoscale import autoscale
from dask_slaq.simulation.settings import Settings

#: Three trainings, the last two at the same time, which are shorter than those of the benchmark.
SOME = [
    replace(person, start=start, parameters={**person.parameters, "iterations": 15})
    for person, start in zip(LISTS["trainings"](0), (0.0, 300.0, 320.0), strict=False)
]


def row(hours, t90, completion):
    found = {"worker_hours": hours, "t90_mean_s": t90, "completion_mean_s": completion}
    return {**found, "starts": 1}


def test_the_cheapest_rival_counts_that_is_as_fast():
    rows = {
        Way("fixed", 4): row(4.0, 200.0, 300.0),
        Way("fixed", 8): row(8.0, 100.0, 200.0),
        Way("fixed", 12): row(12.0, 80.0, 150.0),
        Way("adaptive"): row(2.0, 300.0, 400.0),
        Way("adaptive", wait_count=60): row(5.0, 290.0, 390.0),
        Way("worth"): row(3.0, 100.0, 200.0),
    }
    found = choose(rows)
    assert found["fixed"]["settings"] == "8 workers"
    assert found["adaptive"]["worker_hours"] == 5.0  # none is as fast: the fastest
    assert found["worth"]["worker_hours"] == 3.0


def test_workers_are_paid_for_from_the_request_until_they_are_given_back():
    async def main():
        async with virtual.Cluster([]) as cluster:
            elastic = Elastic(cluster, 30.0, 2)
            elastic.scale(2)
            while len(elastic.observed) < 2:
                await virtual.work(seconds=1.0)
            assert 30 <= elastic.worker_seconds() / 2 <= 32
            names = sorted(elastic.plan)
            await elastic.scale_down(names[:1])
            seconds = elastic.worker_seconds()
            await virtual.work(seconds=10.0)
            await elastic.close()
            return elastic.worker_seconds() - seconds, elastic.starts

    seconds, starts = virtual.run(main)
    assert 9.9 <= seconds <= 10.5 and starts == 2


@pytest.mark.slow
def test_a_simulated_recording_has_the_figures_of_the_real_scheduler(tmp_path):
    log = str(tmp_path / "log")
    virtual.run(partial(running._run, log=log), SOME, Way("fixed", 4))
    settings = Settings(cores=32)
    terms = ScalingTerms(running.PRICE, start_up=running.START_UP)
    ways = autoscale(settings, terms, threads=THREADS, log=log)["ways"]
    for name, way in (
        ("fixed 8", Way("fixed", 8)),
        ("adaptive, wait-count 60", Way("adaptive", wait_count=60)),
        ("worth", Way("worth")),
    ):
        real = virtual.run(running._run, SOME, way)
        for key, most in (("completion_mean_s", 1.25), ("worker_hours", 1.35)):
            if key == "worker_hours" and way.kind == "fixed":
                continue  # the real one counts the time before the first job
            assert 1 / most < ways[name][key] / real[key] < most, (name, key, ways[name], real)
