"""Recorded fits of dask-ml, replayed on the virtual clock with latency. See `__main__`."""
