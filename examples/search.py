"""Many models, one task each: the best one is ready sooner in a search than under plain Dask.

Run it with ``python examples/search.py``. Each model reports its loss after every step, and may
wait there while others are predicted to end better. The same program runs under the policy
``none``, where no model waits, and under the default; all models end with the same losses.
"""

from __future__ import annotations

from time import sleep, time

import numpy as np
from distributed import Client, LocalCluster, as_completed
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
MODELS, STEPS = 12, 15


def train(rate: float) -> float:
    """Train one model. Returns its final loss."""
    X, y = load_digits(return_X_y=True)
    X, X_valid, y, y_valid = train_test_split(X / 16, y, random_state=0)
    model = SGDClassifier(
        loss="log_loss", learning_rate="constant", eta0=rate, alpha=1e-3, random_state=0
    )
    for _ in range(STEPS):
        sleep(0.04)  # as for a larger model
        model.partial_fit(X, y, classes=range(10))
        loss = log_loss(y_valid, model.predict_proba(X_valid), labels=range(10))
        slaq.report(loss)  # waits here while other models gain more
    return loss


def main() -> None:
    rates = np.random.default_rng(0).permutation(np.geomspace(1e-6, 1, MODELS)).tolist()
    for policy, way in (("none", "plain Dask"), ("first-to-target", "search")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy))
            begin = time()
            with slaq.search("digits", steps=STEPS) as search:
                futures = search.map(train, rates)
            ready = [(loss, time() - begin) for _, loss in as_completed(futures, with_results=True)]
            (loss, best), *_ = sorted(ready)
            three, last = max(after for _, after in sorted(ready)[:3]), ready[-1][1]
            print(f"{way}: best model (loss {loss:.3f}) after {best:.1f} s, ", end="")
            print(f"best three after {three:.1f} s, all {len(ready)} after {last:.1f} s")


if __name__ == "__main__":
    main()
