"""Dask's real scheduler, workers and clients on a virtual clock, in one process.

Run your own list of jobs on Dask's own scheduler. The clock jumps from timer to timer, so a minute
of cluster time takes only as long as its computations, and results do not depend on the load of
the machine.

>>> from benchmarks import virtual
>>> async def main():
...     async with virtual.Cluster(threads=[1] * 4) as cluster, cluster.client() as client:
...         futures = client.map(virtual.work, range(8), seconds=0.5)
...         await client.gather(futures)
...         return virtual.now()
>>> round(virtual.run(main) - virtual.BEGINNING, 1)
1.0
"""

from benchmarks.virtual.charge import charge_scheduler as charge_scheduler
from benchmarks.virtual.clock import BEGINNING as BEGINNING
from benchmarks.virtual.clock import Stuck as Stuck
from benchmarks.virtual.clock import now as now
from benchmarks.virtual.clock import run as run
from benchmarks.virtual.clock import seconds_charged as seconds_charged
from benchmarks.virtual.cluster import Cluster as Cluster
from benchmarks.virtual.cluster import Transitions as Transitions
from benchmarks.virtual.latency import latency_option as latency_option
from benchmarks.virtual.latency import set_latency as set_latency
from benchmarks.virtual.pool import pool as pool
from benchmarks.virtual.pool import run_all as run_all
from benchmarks.virtual.tasks import Sized as Sized
from benchmarks.virtual.tasks import work as work
