"""``dask slaq demo``: real dask-ml jobs on a local cluster, one policy after another.

`show` runs it. What is trained is in `data` and `jobs`, how in `drivers`, what
is measured in `meters` and `compare`, what is shown in `table`, `charts` and `report`.
"""

from __future__ import annotations

#: Iterations that each job trains, and rows in each chunk of its data: on two cores the whole demo
#: takes less than two minutes.
ITERATIONS = 14
ROWS = 45_000
