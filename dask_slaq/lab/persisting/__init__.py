"""What to persist: results that a program computes more than once, on any Dask cluster.

It needs no `SlaqPlugin`, and no jobs:

>>> from dask_slaq.lab import persisting
>>> with persisting.watch(client) as found:  # doctest: +SKIP
...     model.fit(X, y)
>>> print(found)  # doctest: +SKIP

On a cluster for many, ``dask scheduler --preload dask_slaq.lab.persisting`` counts for all clients
from the start, and each asks by `advise`.
"""

from dask_slaq.lab.persisting.advice import Advice, advise, watch
from dask_slaq.lab.persisting.counting import RepeatedResults, dask_setup

__all__ = ["Advice", "RepeatedResults", "advise", "dask_setup", "watch"]
