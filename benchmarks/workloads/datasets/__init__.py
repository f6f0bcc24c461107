"""Loaders for data sets in the forms in which they are distributed, as lazy dask arrays."""

from benchmarks.workloads.datasets.errors import DataFileError
from benchmarks.workloads.datasets.idx import read_idx
from benchmarks.workloads.datasets.lda_c import read_lda_c, read_vocabulary
from benchmarks.workloads.datasets.regression import read_csv_regression, read_year_prediction
from benchmarks.workloads.datasets.svmlight import read_svmlight

__all__ = [
    "DataFileError",
    "read_csv_regression",
    "read_idx",
    "read_lda_c",
    "read_svmlight",
    "read_vocabulary",
    "read_year_prediction",
]
