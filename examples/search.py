"""Many models, one task each: the promising ones get the threads first, and none is given up.

Run it with ``python examples/search.py``. Each model reports its loss after every step, and may
wait there while others are predicted to end better. They are printed in the order in which they are
ready, with their place when sorted by final loss.
"""

from __future__ import annotations

import numpy as np
from distributed import Client, LocalCluster, as_completed
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

MODELS, STEPS = 12, 15


def train(rate: float) -> tuple[float, float]:
    """Train one model. Returns its learning rate and its final loss."""
    X, y = load_digits(return_X_y=True)
    X, X_valid, y, y_valid = train_test_split(X / 16, y, random_state=0)
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=rate, alpha=1e-3, random_state=0
    )
    for _ in range(STEPS):
        for _ in range(3):
            model.partial_fit(X, y, classes=range(10))
        loss = log_loss(y_valid, model.predict_proba(X_valid), labels=range(10))
        slaq.report(loss)  # waits here while other models gain more
    return rate, loss


def main() -> None:
    rates = np.random.default_rng(0).permutation(np.geomspace(1e-6, 1, MODELS)).tolist()
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin())
        with slaq.search("digits", steps=STEPS) as search:
            futures = client.map(train, rates)
        ready = [result for _, result in as_completed(futures, with_results=True)]
        places = np.argsort(np.argsort([loss for _, loss in ready])) + 1
        for place, (rate, loss) in zip(places, ready, strict=True):
            print(f"place {place}: rate {rate:.6f}, loss {loss:.3f}")
        trials = search.trials()
        waited = sum(trial["waited"] for trial in trials) / len(trials)
        print(f"{len(trials)} models, {sum(t['iteration'] for t in trials)} reports")
        print(f"a model waited for {waited:.1f} s on average")


if __name__ == "__main__":
    main()
