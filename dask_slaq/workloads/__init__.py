"""The nine algorithms of the paper's Table 1 as elastic Dask jobs, and their data."""
