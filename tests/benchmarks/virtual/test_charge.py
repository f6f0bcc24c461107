"""What the scheduler computes takes virtual time if it is charged."""

import time

import pytest

from benchmarks import virtual
from benchmarks.common.metrics import summarize
from benchmarks.live_jobs.emulated import make_jobs
from benchmarks.live_jobs.virtual_time import run_virtual
from dask_slaq.simulation.workload.curves import make_curves

SLOW = """
from dask_slaq.core.policies import policy

class Slow(type(policy("max-total"))):
    name = "slow"

    def __call__(self, snapshot):
        sum(range(2_000_000))
        return super().__call__(snapshot)
"""


@pytest.fixture
def slow(tmp_path, monkeypatch):
    (tmp_path / "policy_of_a_slow_heart.py").write_text(SLOW)
    monkeypatch.syspath_prepend(tmp_path)
    return "policy_of_a_slow_heart.Slow"


def t90(policy, charge):
    jobs = make_jobs("staggered", make_curves(0), 0, count=3, scale=0.02)
    run = run_virtual(jobs, policy, seed=0, workers=4, charge=charge)
    return summarize([run])["t90_mean_s"], run.charged


@pytest.mark.slow
def test_a_slow_policy_shows_in_the_time_to_quality_if_it_is_charged(slow):
    (quick, some), (late, much) = (t90(each, 1.0) for each in ("max-total", slow))
    assert 0 < some < much and quick < late


def test_code_that_is_charged_sees_the_clock_advance():
    async def main():
        async with virtual.Cluster(threads=[1]) as cluster, cluster.client() as client:
            seen = []

            def handler(**message):
                begin = time.monotonic()
                sum(range(1_000_000))
                seen.append(time.monotonic() - begin)

            cluster.scheduler.stream_handlers["busy"] = handler
            send = client.scheduler_comm.send
            for charge in (0.0, 1.0, 100.0):
                with virtual.charge_scheduler(cluster.scheduler, charge):
                    send({"op": "busy"})
                    await client.submit(virtual.work, pure=False)
            return seen, virtual.seconds_charged()

    (free, once, many), total = virtual.run(main)
    assert free == 0 < once < many < total
