"""Clusters that grow and shrink: a fixed one, Dask's own adaptive one, and workers by worth."""
