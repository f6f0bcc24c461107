"""Prediction, allocation and placement. This package imports neither Dask nor a clock."""
