"""Models that outlive their worker: under plain Dask those of a killed worker begin anew.

Run it with ``python examples/survives.py``. Each model trains in a loop over ``slaq.steps``, which
keeps its state, so that it goes on wherever Dask sends it. Both runs kill a worker while the first
models are in their second half, and count the steps that were trained.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import numpy as np
from distributed import Client, Event, LocalCluster
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

MODELS, STEPS, LATE = 4, 20, 15


def train(rate: float, folder: str, keep: bool) -> float:
    """Train one model. Returns its final loss."""
    X, y = load_digits(return_X_y=True)
    X, X_valid, y, y_valid = train_test_split(X / 16, y, random_state=0)
    model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=rate, random_state=0)
    for step in slaq.steps(STEPS, model) if keep else range(STEPS):
        time.sleep(0.08)  # so small a model would be ready at once
        model.partial_fit(X, y, classes=range(10))
        loss = log_loss(y_valid, model.predict_proba(X_valid), labels=range(10))
        (
            Path(folder) / f"{uuid4().hex}.step"
        ).touch()  # a step was trained; a file outlives a worker
        if step == LATE:
            Event("late").set()
        slaq.report(loss)
    return loss


def main() -> None:
    shape = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    for policy, way in (("none", "plain Dask"), ("first-to-target", "slaq.steps")):
        with (
            tempfile.TemporaryDirectory() as folder,
            LocalCluster(**shape) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(slaq.SlaqPlugin(policy=policy))
            rates, keep = np.geomspace(1e-4, 1, MODELS).tolist(), policy != "none"
            states = f"{folder}/states" if keep else None  # without it, in Dask's memory
            with slaq.search("digits", steps=STEPS, states=states):
                futures = client.map(train, rates, folder=folder, keep=keep)
            Event("late").wait()
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
            loss = min(client.gather(futures))
            trained = len(list(Path(folder).glob("*.step")))
        print(f"{way}: {trained} steps for {MODELS * STEPS}, lowest loss {loss:.3f}")


if __name__ == "__main__":
    main()
