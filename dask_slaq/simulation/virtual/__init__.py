"""Dask's real scheduler, workers and clients on a virtual clock, in one process.

Run your own list of jobs on Dask's own scheduler. The clock jumps from timer to timer, so a minute
of cluster time takes only as long as its computations, and results do not depend on the load of
the machine.

>>> from dask_slaq.simulation import virtual
>>> async def main():
...     async with virtual.Cluster(threads=[1] * 4) as cluster, cluster.client() as client:
...         futures = client.map(virtual.work, range(8), seconds=0.5)
...         await client.gather(futures)
...         return virtual.now()
>>> round(virtual.run(main) - virtual.BEGINNING, 1)
1.0
"""

from dask_slaq.simulation.virtual.clock import BEGINNING as BEGINNING
from dask_slaq.simulation.virtual.clock import Stuck as Stuck
from dask_slaq.simulation.virtual.clock import now as now
from dask_slaq.simulation.virtual.clock import run as run
from dask_slaq.simulation.virtual.cluster import Cluster as Cluster
from dask_slaq.simulation.virtual.cluster import Transitions as Transitions
from dask_slaq.simulation.virtual.pool import pool as pool
from dask_slaq.simulation.virtual.tasks import Sized as Sized
from dask_slaq.simulation.virtual.tasks import work as work
