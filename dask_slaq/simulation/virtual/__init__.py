"""Dask's real scheduler, workers and clients on a virtual clock, in one thread.

Nothing of Dask is replaced: only the clock that it reads jumps from timer to timer, so a minute of
cluster time takes as long as its computations and no figure depends on how busy the machine is.

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
