"""Searches: which of their trials train on each worker, and which wait in their report."""

from dask_slaq.scheduler.trials.searches import Search, Searches

__all__ = ["Search", "Searches"]
