"""A pipeline as one job per stage: what each takes, and which of them reports a loss.

dask-ml's scaler, truncated SVD and logistic regression follow each other on Dask arrays. A stage
without a loss is scheduled by the tasks that it has submitted, and the last one by its loss.

    python examples/pipeline.py
"""

from __future__ import annotations

import argparse

import dask.array as da
from dask_ml.decomposition import TruncatedSVD
from dask_ml.linear_model import LogisticRegression
from dask_ml.preprocessing import StandardScaler
from distributed import Client, LocalCluster, wait

import dask_slaq as slaq


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
        for name, step in (("scale", StandardScaler()), ("svd", TruncatedSVD(5))):
            with slaq.job(f"churn-{name}", client=c):
                X = step.fit(X).transform(X).persist()
                wait(X)  # what it still computes belongs to this job
        with slaq.job("churn-train", client=c):
            LogisticRegression(solver="gradient_descent", max_iter=3).fit(X, y)
        history = slaq.history(c)
        for name in ("scale", "svd", "train"):
            job = history.sel(job=f"churn-{name}").max("epoch")
            print(f"{name}: {job.core_seconds:.2f} core-seconds, {job.iteration:.0f} losses")


if __name__ == "__main__":
    main()
