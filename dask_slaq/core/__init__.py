"""The pure core: prediction, allocation, placement. Imports neither Dask nor a clock."""
