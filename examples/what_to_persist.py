"""What is worth keeping in memory? A recorded run tells.

Run it with ``python examples/what_to_persist.py``. Hashed text trains an SGD classifier over
several passes. Nothing is persisted at first, so each pass reads and hashes all text again. The run
is recorded, ``dask slaq advise`` says which result to persist, and the second run does that.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import dask.array as da
import dask.bag as db
import numpy as np
from dask_ml.feature_extraction.text import HashingVectorizer
from dask_ml.wrappers import Incremental
from distributed import Client, LocalCluster
from sklearn.linear_model import SGDClassifier

import dask_slaq as slaq

PARTITIONS, DOCUMENTS, PASSES = 8, 1000, 4


def read(part: int) -> list[str]:
    """Return the documents of one partition: the words of class 1 are a little different."""
    rng = np.random.default_rng(part)
    classes = labels(part)
    words = rng.integers(0, 2000, (DOCUMENTS, 120)) + 200 * classes[:, None]
    return [" ".join(f"word{word}" for word in document) for document in words]


def labels(part: int) -> np.ndarray:
    """Return the classes of the documents of one partition."""
    return np.random.default_rng(-part % 997).integers(0, 2, DOCUMENTS)


def train(persist: bool) -> tuple[np.ndarray, float]:
    """Train the classifier. Returns its coefficients, and the seconds that it took."""
    begin = perf_counter()
    text = db.from_sequence(range(PARTITIONS), npartitions=PARTITIONS).map(read).flatten()
    X = HashingVectorizer(n_features=2**12, alternate_sign=False).transform(text)
    y = da.from_array(np.concatenate([labels(part) for part in range(PARTITIONS)]), DOCUMENTS)
    if persist:
        X = X.persist()
    model: Any = Incremental(SGDClassifier(loss="log_loss", random_state=0), shuffle_blocks=False)
    for _ in range(PASSES):
        model.partial_fit(X, y, classes=[0, 1])
    return model.estimator_.coef_, perf_counter() - begin


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = str(Path(folder) / "slaq.jsonl")
        with (
            LocalCluster(
                n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
            ) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(slaq.SlaqPlugin(log=log))
            with slaq.job("as-is"):
                first, as_is = train(persist=False)
            with slaq.job("persisted"):
                second, persisted = train(persist=True)
        command = [sys.executable, "-m", "dask_slaq", "advise", log, "--memory-limit", "1GiB"]
        print(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    same = "equal" if np.array_equal(first, second) else "different"
    print(f"as it is: {as_is:.1f} s, persisted: {persisted:.1f} s; the models are {same}")


if __name__ == "__main__":
    main()
