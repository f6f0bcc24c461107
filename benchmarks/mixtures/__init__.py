"""Mixtures of work on one cluster: what each participant loses or gains against plain Dask."""
