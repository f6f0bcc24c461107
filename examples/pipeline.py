"""The steps of a pipeline are stages: what each takes, and when the job ends.

A scikit-learn ``Pipeline`` of dask-ml's scaler, truncated SVD and logistic regression is fitted
twice on Dask arrays. In the second run the scheduler remembers what each stage took, so it knows
from the first stage on when the job ends.

    python examples/pipeline.py
"""

from __future__ import annotations

import argparse
import threading
import time

import dask.array as da
from dask_ml.decomposition import TruncatedSVD
from dask_ml.linear_model import LogisticRegression
from dask_ml.preprocessing import StandardScaler
from distributed import Client, LocalCluster
from sklearn.pipeline import Pipeline

import dask_slaq as slaq

STEPS = ("scale", "svd", "train")


class Watcher(threading.Thread):
    """Follows the status of the running job: the seconds in each stage, and its expected end."""

    def __init__(self, client: Client) -> None:
        super().__init__(daemon=True)
        self.client, self.over = client, threading.Event()
        self.seconds = dict.fromkeys(STEPS, 0.0)
        self.expected: tuple[float, float, str] | None = None  # first seen: age, end, stage
        self.age = 0.0

    def run(self) -> None:
        """Look until the job is over."""
        last = time.monotonic()
        while not self.over.wait(0.05):
            job = slaq.status(self.client)["jobs"].get("pipeline")
            now = time.monotonic()
            if job is not None and job["stage"] is not None:
                self.seconds[job["stage"]["name"]] += now - last
                self.age = job["age"]
                ends = job["ends"]
                if self.expected is None and ends and ends["expected"] and not job["iteration"]:
                    self.expected = job["age"], job["age"] + ends["expected"], job["stage"]["name"]
            last = now


def fit(client: Client, X: da.Array, y: da.Array) -> Watcher:
    """Fit a pipeline as one job. Returns what was seen meanwhile."""
    train = LogisticRegression(solver="gradient_descent", max_iter=3)
    steps = (StandardScaler(), TruncatedSVD(5), train)
    watcher = Watcher(client)
    with slaq.job("pipeline", client=client):
        watcher.start()
        Pipeline(list(zip(STEPS, steps, strict=True))).fit(X, y)
    watcher.over.set()
    watcher.join()
    return watcher


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000)
    rows = parser.parse_args().rows
    small = {"n_workers": 1, "threads_per_worker": 2, "dashboard_address": None}
    with LocalCluster(processes=False, **small) as cluster, Client(cluster) as c:
        c.register_plugin(slaq.SlaqPlugin(epoch="100ms"))
        random = da.random.default_rng(0)
        X = random.normal(size=(rows, 20), chunks=(rows // 8, 20)).persist()
        y = (X[:, 0] + random.normal(size=rows, chunks=rows // 8) > 0).astype(int).persist()
        for run in ("first", "second"):
            seen = fit(c, X, y)
            parts = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in seen.seconds.items())
            print(f"{run} run: {parts}")
            if run == "second" and seen.expected is not None:
                age, end, stage = seen.expected
                print(
                    f"  after {age:.1f} s, in stage {stage}, its end was expected at {end:.1f} s; "
                    f"it came at {seen.age:.1f} s"
                )


if __name__ == "__main__":
    main()
