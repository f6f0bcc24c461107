"""A pipeline as one job per stage says what each stage takes; plain Dask only what all of them do.

Run it with ``python examples/pipeline.py``. dask-ml's scaler, truncated SVD and logistic regression
follow each other on Dask arrays. A stage without a loss is scheduled by its tasks, the last one by
its loss. The policy ``none`` leaves everything to Dask.
"""

from __future__ import annotations

import warnings
from time import time

import dask.array as da
from dask_ml.decomposition import TruncatedSVD
from dask_ml.linear_model import LogisticRegression
from dask_ml.preprocessing import StandardScaler
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq

ROWS = 10_000
warnings.simplefilter("ignore")  # of dask-glm
SMALL = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}


def train(client: Client) -> None:
    random = da.random.default_rng(0)
    X = random.normal(size=(ROWS, 20), chunks=(ROWS // 8, 20)).persist()
    y = (X[:, 0] + random.normal(size=ROWS, chunks=ROWS // 8) > 0).astype(int).persist()
    for name, step in (("scale", StandardScaler()), ("svd", TruncatedSVD(5, random_state=0))):
        with slaq.job(f"churn-{name}", client=client):
            X = step.fit(X).transform(X).persist()
            wait(X)  # what it still computes belongs to this job
    with slaq.job("churn-train", client=client):
        LogisticRegression(solver="gradient_descent", max_iter=3).fit(X, y)


def main() -> None:
    for policy, way in (("none", "plain Dask"), ("first-to-target", "jobs")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="100ms"))
            begin = time()
            train(client)
            print(f"{way}: {time() - begin:.1f} s")
            history = slaq.history(client)
    for name in ("scale", "svd", "train"):
        job = history.sel(job=f"churn-{name}").max("epoch")
        print(f"{name}: {job.core_seconds:.2f} core-seconds, {job.iteration:.0f} losses")
    print(
        "Alone, a pipeline gains no time as jobs, and may lose some on a small or busy machine; it "
        "gains when others want the same threads."
    )


if __name__ == "__main__":
    main()
