"""The shell on the Dask scheduler: the plugin, and the task pools that enforce its grants."""
