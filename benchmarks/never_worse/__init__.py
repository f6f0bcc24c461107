"""Never worse than plain Dask: random scenarios, each with and without the plugin."""
