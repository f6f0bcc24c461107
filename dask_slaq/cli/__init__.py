"""Command line ``dask slaq``, also available as ``python -m dask_slaq``."""

from dask_slaq.cli.main import slaq as slaq
