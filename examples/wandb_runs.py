"""A search whose models are runs of W&B, offline: the best run ends sooner than under plain Dask.

Run it with ``python examples/wandb_runs.py``; it needs ``pip install dask-slaq[wandb]``. Models
take turns in a process, so each logs to its own run: ``wandb.log`` takes the one that is open.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from time import sleep, time

from distributed import Client, LocalCluster

import dask_slaq as slaq

try:
    import wandb
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing}: pip install 'dask-slaq[wandb]'") from None

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
GRID, STEPS = [{"rate": 0.02 * k} for k in range(1, 9)], 20


def train(params: dict[str, float], folder: str) -> tuple[float, float]:
    """Train one model as a run. Returns its loss, and the time."""
    about = {"mode": "offline", "dir": folder, "project": "grid", "reinit": "create_new"}
    quiet = wandb.Settings(silent=True)
    with wandb.init(config=params, settings=quiet, **about) as run:  # `wandb sync` uploads it
        for step in range(STEPS):
            sleep(0.05)  # a step of training
            run.log({"loss": (loss := (1 - params["rate"]) ** step)})
            slaq.report(loss)  # waits here while other models gain more
    return loss, time()


if __name__ == "__main__":
    for policy, way in (("none", "plain Dask"), ("first-to-target", "search")):
        with (
            TemporaryDirectory() as folder,
            LocalCluster(**SMALL) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(slaq.SlaqPlugin(policy=policy))
            begin = time()
            with slaq.search("grid", steps=STEPS) as search:
                ended = client.gather(search.map(train, GRID, folder=folder))
            runs = len(list(Path(folder).glob("wandb/offline-run-*")))
            print(f"{way}: {runs} runs, the best ended after {min(ended)[1] - begin:.1f} s")
