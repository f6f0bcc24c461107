"""The benchmark autoscale picks fair rivals, and its cluster counts worker-hours right."""

from driving import virtually

from benchmarks import virtual
from benchmarks.autoscale.__main__ import choose
from benchmarks.autoscale.elastic import Elastic
from benchmarks.autoscale.running import Way


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


@virtually
async def test_workers_are_paid_for_from_the_request_until_they_are_given_back():
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
        assert 9.9 <= elastic.worker_seconds() - seconds <= 10.5 and elastic.starts == 2
