"""Elastic Dask implementations of the nine algorithms in the paper's Table 1, and their data."""
