"""Never worse than plain Dask: random scenarios, each run with the plugin and without."""
