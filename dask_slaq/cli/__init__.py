"""The ``dask slaq`` command line, also as ``python -m dask_slaq``."""

from dask_slaq.cli.main import slaq

__all__ = ["slaq"]
