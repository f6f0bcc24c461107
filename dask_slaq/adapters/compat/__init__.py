"""Repairs of dask-ml for releases of its dependencies that are newer than itself."""
