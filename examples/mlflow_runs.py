"""A search whose models are runs of MLflow: the best run ends sooner than under plain Dask.

Run it with ``python examples/mlflow_runs.py``; it needs ``pip install dask-slaq[mlflow]``. Models
take turns in a process, so ``MlflowClient`` names the run in each call: an open run is shared.
"""

from __future__ import annotations

from tempfile import TemporaryDirectory
from time import sleep

from distributed import Client, LocalCluster

import dask_slaq as slaq

try:
    from mlflow import MlflowClient
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing}: pip install 'dask-slaq[mlflow]'") from None

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
GRID, STEPS = [{"rate": 0.02 * k} for k in range(1, 9)], 20


def train(params: dict[str, float], store: str, experiment: str) -> None:
    tracker = MlflowClient(store)  # a file, or the address of a server
    run = tracker.create_run(experiment).info.run_id
    tracker.log_param(run, "rate", params["rate"])
    for step in range(STEPS):
        sleep(0.05)  # a step of training
        tracker.log_metric(run, "loss", loss := (1 - params["rate"]) ** step, step=step)
        slaq.report(loss)  # waits here while other models gain more
    tracker.set_terminated(run)


if __name__ == "__main__":
    for policy, way in (("none", "plain Dask"), ("first-to-target", "search")):
        with (
            TemporaryDirectory() as folder,
            LocalCluster(**SMALL) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(slaq.SlaqPlugin(policy=policy))
            tracker = MlflowClient(store := f"sqlite:///{folder}/runs.db")
            about = {"store": store, "experiment": tracker.create_experiment("grid", folder)}
            with slaq.search("grid", steps=STEPS) as search:
                client.gather(search.map(train, GRID, **about))
            runs = tracker.search_runs([about["experiment"]], order_by=["metrics.loss"])
            seconds = runs[0].info.end_time / 1e3 - min(run.info.start_time for run in runs) / 1e3
            best = runs[0].data
            print(f"{way}: {len(runs)} runs, the best {best.params} ended after {seconds:.1f} s")
