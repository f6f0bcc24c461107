"""Repairs of dask-ml for the versions of its dependencies that it was not written for."""
