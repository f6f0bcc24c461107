"""Training-loss curves of the nine algorithms of the paper's Table 1, from actual training.

scikit-learn and NumPy train on synthetic data; data, hyper-parameters and batches are drawn from
the seed. A curve has one loss per iteration. In full-batch training it is the loss of the whole
training set after the iteration; in mini-batch training (`averaging`) it is the mean over the
iteration's batches, as a training loop prints it. The lines do not record whether a curve is noisy:
as for any other file, the share of its rising steps decides.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import click
import numpy as np

from benchmarks.curves.training import ALGORITHMS

__all__ = ["ALGORITHMS", "generate", "main", "train"]

SHORTEST, LONGEST = 60, 300
#: Share of the curves that come from mini-batch training.
MINIBATCH = 0.4


def train(algorithm: str, number: int, seed: int = 0) -> dict[str, Any]:
    """Train one curve, deterministically. Returns a line of a curve file.

    Each number has its own data and hyper-parameters. Of any five consecutive numbers, two are
    trained on mini-batches.
    """
    which = list(ALGORITHMS).index(algorithm)
    rng = np.random.default_rng([seed, which, number])
    minibatch = int((number + 1) * MINIBATCH) > int(number * MINIBATCH)
    losses: list[float] = []
    while len(losses) < SHORTEST:  # redraw a run that converges sooner
        iterations = int(rng.integers(SHORTEST, LONGEST + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # stopping before convergence is intended
            losses = list(islice(ALGORITHMS[algorithm](rng, minibatch, iterations), iterations))
    return {
        "id": f"{algorithm.replace(', ', '-').replace(' ', '-').lower()}-{seed}-{number:03}",
        "algorithm": algorithm,
        "averaging": "minibatch" if minibatch else "full-batch",
        "loss": losses,
    }


def generate(seed: int = 0, count: int = 144) -> Iterator[dict[str, Any]]:
    """Train `count` curves, cycling through the algorithms. See `train`."""
    names = list(ALGORITHMS)
    for i in range(count):
        yield train(names[i % len(names)], i // len(names), seed)


@click.command()
@click.option(
    "--out", default="-", show_default=True, help="JSON lines file; - is standard output."
)
@click.option(
    "--seed", default=0, show_default=True, help="Seed of data, hyper-parameters and batches."
)
@click.option(
    "--count", default=144, show_default=True, type=click.IntRange(1), help="Number of curves."
)
def main(out: str, seed: int, count: int) -> None:
    """Train the nine algorithms, and write their loss curves."""
    with click.open_file(out, "w") as file:
        for line in generate(seed, count):
            file.write(json.dumps(line) + "\n")
            print(f"{line['id']}: {len(line['loss'])} iterations", file=sys.stderr)


if __name__ == "__main__":
    main()
