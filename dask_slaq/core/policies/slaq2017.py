"""SLAQ as published (SoCC 2017): Algorithm 1 from one core per job, and shares enforced by tokens.

Forecasts, normalizer and running times of the paper are settings, which these policies preset.
"""

from __future__ import annotations

import math
from types import MappingProxyType

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray
from dask_slaq.core.policies.base import GreedyPolicy
from dask_slaq.core.policies.quality_driven import MaxMin, MaxTotal
from dask_slaq.core.policies.snapshot import Snapshot
from dask_slaq.core.policies.water_filling import fair_fill


class _AsPublished(GreedyPolicy):
    """Base class of the two policies of §4.3, which start with one core per job.

    With fewer threads than jobs all get a part of one. Where the paper says nothing, of a job that
    has no forecast yet, it gets its fair share.
    """

    by_tokens = True
    presets = MappingProxyType(
        {
            "predictor": "paper",
            "normalizer": "largest-change",
            "runtime": "linear",
            "max_slowdown": math.inf,
            "floor": 0.0,
        }
    )

    def first(
        self, snapshot: Snapshot, has_forecast: BoolArray, lower: FloatArray, upper: FloatArray
    ) -> FloatArray:
        """Return one core per job, a_j = 1, to prevent starvation."""
        one = np.clip(1.0, lower, upper)
        return fair_fill(snapshot.weight, lower, one, snapshot.capacity)

    def index(self, snapshot: Snapshot, has_forecast: BoolArray) -> FloatArray:
        """Return equal indices, because shares decide, and not an order."""
        return np.zeros(len(snapshot.jobs))


class Slaq2017(_AsPublished, MaxTotal):
    """The paper's Algorithm 1: each further core goes where the loss falls most by the next epoch.

    >>> gain = lambda threads: np.array([1.0, 0.1]) * (1 - 0.5**threads)
    >>> two = np.ones(2)
    >>> Slaq2017()(Snapshot(("a", "b"), 6, two, 0 * two, 9 * two, two > 0, two, gain)).share
    array([5., 1.])
    """

    name = "slaq2017"


class Slaq2017Min(_AsPublished, MaxMin):
    """The paper's minimum quality: each further core goes to the worst predicted loss."""

    name = "slaq2017-min"
