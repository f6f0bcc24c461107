"""What the scheduler computes takes virtual time if it is charged."""

import time

from driving import virtually

from benchmarks import virtual


@virtually
async def test_code_that_is_charged_sees_the_clock_advance():
    seen = []

    def handler(**message):
        begin = time.monotonic()
        sum(range(1_000_000))
        seen.append(time.monotonic() - begin)

    async with virtual.Cluster(threads=[1]) as cluster, cluster.client() as client:
        cluster.scheduler.stream_handlers["busy"] = handler
        send = client.scheduler_comm.send
        for charge in (0.0, 1.0, 100.0):
            with virtual.charge_scheduler(cluster.scheduler, charge):
                send({"op": "busy"})
                await client.submit(virtual.work, pure=False)
    free, once, many = seen
    assert free == 0 < once < many < virtual.seconds_charged()
