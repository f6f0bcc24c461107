"""``dask slaq advise``: choice of solver and thread count from recorded runs."""

from dask_slaq.cli.advise.command import advise

__all__ = ["advise"]
