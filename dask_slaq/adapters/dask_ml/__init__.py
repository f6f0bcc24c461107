"""Loss reports of dask-ml's estimators and searches, one module per family."""
