"""Histogram gradient boosting, one round of trees at a time."""

from benchmarks.workloads.hist_boosting.histograms import bins_of, thresholds_of
from benchmarks.workloads.hist_boosting.losses import LogLoss, Softmax, SquaredError
from benchmarks.workloads.hist_boosting.rounds import Rounds, TreeParams
from benchmarks.workloads.hist_boosting.trees import labels_of, probabilities_of, scores_of

__all__ = [
    "LogLoss",
    "Rounds",
    "Softmax",
    "SquaredError",
    "TreeParams",
    "bins_of",
    "labels_of",
    "probabilities_of",
    "scores_of",
    "thresholds_of",
]
