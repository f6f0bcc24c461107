"""``dask slaq demo``: real dask-ml jobs on a local cluster, under one policy after another.

`run.show` runs it. `data` and `workload` define what is trained and `drivers` train it. `meters`
and `metrics` measure the runs; `live_table`, `charts` and `report` show them.
"""

from __future__ import annotations

#: Iterations per job and rows per chunk of its data. The demo takes less than two minutes on two
#: cores.
ITERATIONS = 14
ROWS = 45_000
