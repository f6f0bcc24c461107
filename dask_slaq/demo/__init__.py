"""``dask slaq demo``: real dask-ml jobs on a local cluster, one policy after another.

`show` runs it. What is trained is in `data` and `jobs`, how in `drivers` and `runs`, what
is measured in `meters` and `compare`, what is shown in `table`, `charts` and `report`.
"""

from __future__ import annotations
