"""Models that outlive their worker: half-way, a worker is killed, and nothing begins anew.

Run it with ``python examples/survives.py``. Each model trains in a loop over ``slaq.steps``, which
keeps its state, so that it goes on wherever Dask sends it.
"""

from __future__ import annotations

import os
import signal
import time

import numpy as np
from distributed import Client, Event, LocalCluster
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

MODELS, STEPS = 8, 15


def train(rate: float) -> tuple[float, list[int]]:
    """Train one model. Returns its final loss, and the process of each step."""
    X, y = load_digits(return_X_y=True)
    X, X_valid, y, y_valid = train_test_split(X / 16, y, random_state=0)
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0)
    made: list[int] = []
    for _ in slaq.steps(STEPS, model, made):
        time.sleep(0.1)  # so small a model would be ready at once
        model.partial_fit(X, y, classes=range(10))
        loss = log_loss(y_valid, model.predict_proba(X_valid), labels=range(10))
        made.append(os.getpid())
        if len(made) == STEPS // 2:
            Event("half-way").set()
        slaq.report(loss)
    return loss, made


def main() -> None:
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin())
        with slaq.search("digits", steps=STEPS):
            futures = client.map(train, np.geomspace(1e-4, 1, MODELS).tolist())
        Event("half-way").wait()
        killed = next(iter(client.run(os.getpid).values()))
        os.kill(killed, signal.SIGKILL)
        results = client.gather(futures)
        moved = sum(len(set(made)) > 1 for _, made in results)
        print(f"{len(results)} models, {sum(len(made) for _, made in results)} steps")
        print(f"{moved} of them trained in more than one process")
        print(f"lowest loss {min(loss for loss, _ in results):.3f}")


if __name__ == "__main__":
    main()
