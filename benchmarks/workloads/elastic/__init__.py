"""Shared parts of the elastic estimators: partitions, validation and blockwise prediction."""

from benchmarks.workloads.elastic.blockwise import (
    as_blocks,
    as_dask,
    check_columns,
    dense,
    map_rows,
)
from benchmarks.workloads.elastic.checks import check_integer, check_number
from benchmarks.workloads.elastic.classifier import PartitionedClassifier
from benchmarks.workloads.elastic.partitions import Partitions, contiguous, tree_sum
from benchmarks.workloads.elastic.validation import Survey, is_sparse

__all__ = [
    "PartitionedClassifier",
    "Partitions",
    "Survey",
    "as_blocks",
    "as_dask",
    "check_columns",
    "check_integer",
    "check_number",
    "contiguous",
    "dense",
    "is_sparse",
    "map_rows",
    "tree_sum",
]
