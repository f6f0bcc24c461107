"""Training-loss curves of the nine algorithms of the paper's Table 1 and of networks.

scikit-learn and NumPy train; data, hyper-parameters and batches are drawn from the seed. A curve
has one loss per iteration. In full-batch training it is the loss of the whole training set after
the iteration; in mini-batch training (`averaging`) it is the mean over the iteration's batches, as
a training loop prints it. The lines do not record whether a curve is noisy: as for any other file,
the share of its rising steps decides.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.curves.training import ALGORITHMS, NETWORKS
from dask_slaq.lab.simulation.workload.curves import LossCurve, read_curves

#: Curves of ``python -m benchmarks.curves``, as it makes them by default.
SHIPPED = Path(__file__).parents[1] / "data" / "curves.jsonl.gz"
SHORTEST, LONGEST = 60, 300
#: Iterations at least, and at most, on data with the shape of Table 1's, which take long.
WIDE = 60, 120
#: Share of the curves that come from mini-batch training.
MINIBATCH = 0.4


def train(algorithm: str, number: int, seed: int = 0, *, wide: bool = False) -> dict[str, Any]:
    """Train one curve, deterministically. Returns a line of a curve file.

    Each number has its own data and hyper-parameters. Of any five consecutive numbers, two are
    trained on mini-batches. With `wide`, data has the shape of Table 1's, and batches are whole.
    """
    every = {**ALGORITHMS, **NETWORKS}
    rng = np.random.default_rng([seed, list(every).index(algorithm), number, *[1] * wide])
    minibatch = not wide and int((number + 1) * MINIBATCH) > int(number * MINIBATCH)
    low, high = WIDE if wide else (SHORTEST, LONGEST)
    losses: list[float] = []
    while len(losses) < low:  # redraw a run that converges sooner
        iterations = int(rng.integers(low, high + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # stopping before convergence is intended
            more = {"wide": True} if wide else {}
            losses = list(islice(every[algorithm](rng, minibatch, iterations, **more), iterations))
    name = algorithm.replace(", ", "-").replace(" ", "-").replace("_", "-").lower()
    return {
        "id": f"{name}{'-wide' * wide}-{seed}-{number:03}",
        "algorithm": algorithm,
        "averaging": "minibatch" if minibatch else "full-batch",
        "loss": losses,
    }


def plan(count: int, wide: int = 0, networks: int = 0) -> list[tuple[str, int, bool]]:
    """Return the algorithm and number of each curve to train, and whether it is wide."""
    sorts = (ALGORITHMS, count, False), (ALGORITHMS, wide, True), (NETWORKS, networks, False)
    return [
        (list(names)[i % len(names)], i // len(names), is_wide)
        for names, most, is_wide in sorts
        for i in range(most)
    ]


def generate(seed: int = 0, count: int = 144, **more: int) -> Iterator[dict[str, Any]]:
    """Train the curves of a `plan`, cycling through the algorithms. See `train`."""
    for algorithm, number, wide in plan(count, **more):
        yield train(algorithm, number, seed, wide=wide)


def shipped() -> list[LossCurve]:
    """Return the curves that come along."""
    return read_curves([SHIPPED])
