"""Training-loss curves of the nine algorithms of the paper's Table 1, trained for real.

scikit-learn and NumPy train on synthetic data; data, hyper-parameters and batches are drawn
from the seed. A curve has one loss an iteration: of the whole training set after an iteration
of full-batch training, or, with `averaging` minibatch, the mean over the batches of the
iteration as a training loop prints it. A line does not say whether the curve is noisy: the
share of its rising steps decides, as for every other file.
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
#: Share of the curves that are trained on mini-batches.
MINIBATCH = 0.4


def train(algorithm: str, number: int, seed: int = 0) -> dict[str, Any]:
    """One curve, a function of its arguments.

    Parameters
    ----------
    algorithm : str
        One of `ALGORITHMS`.
    number : int
        Which of the algorithm's curves: other data, other hyper-parameters. Of any five in a
        row, two are trained on mini-batches.
    seed : int

    Returns
    -------
    dict
        ``id``, ``algorithm``, ``averaging`` and ``loss``, a line of a curve file.
    """
    which = list(ALGORITHMS).index(algorithm)
    rng = np.random.default_rng([seed, which, number])
    minibatch = int((number + 1) * MINIBATCH) > int(number * MINIBATCH)
    losses: list[float] = []
    while len(losses) < SHORTEST:  # a run that converges sooner is drawn anew
        iterations = int(rng.integers(SHORTEST, LONGEST + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # training that stops before it converged is meant
            losses = list(islice(ALGORITHMS[algorithm](rng, minibatch, iterations), iterations))
    return {
        "id": f"{algorithm.replace(', ', '-').replace(' ', '-').lower()}-{seed}-{number:03}",
        "algorithm": algorithm,
        "averaging": "minibatch" if minibatch else "full-batch",
        "loss": losses,
    }


def generate(seed: int = 0, count: int = 144) -> Iterator[dict[str, Any]]:
    """Lines of `count` curves, the algorithms in turn.

    Yields
    ------
    dict
        As of `train`.
    """
    names = list(ALGORITHMS)
    for i in range(count):
        yield train(names[i % len(names)], i // len(names), seed)


@click.command()
@click.option("--out", default="-", show_default=True, help="JSON lines; - is standard output.")
@click.option("--seed", default=0, show_default=True, help="Draws data, hyper-parameters, batches.")
@click.option("--count", default=144, show_default=True, type=click.IntRange(1), help="Curves.")
def main(out: str, seed: int, count: int) -> None:
    """Train the nine algorithms and write their loss curves."""
    with click.open_file(out, "w") as file:
        for line in generate(seed, count):
            file.write(json.dumps(line) + "\n")
            print(f"{line['id']}: {len(line['loss'])} iterations", file=sys.stderr)


if __name__ == "__main__":
    main()
