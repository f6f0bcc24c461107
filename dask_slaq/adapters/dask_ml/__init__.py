"""Estimators and searches of dask-ml; one module per family."""
