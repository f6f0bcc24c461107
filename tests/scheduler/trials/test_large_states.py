"""Models of which few fit on a worker leave it instead of waiting there; real processes."""

import gc
import logging
import time
from functools import partialmethod

import pytest
from distributed import Client, LocalCluster, Status

import dask_slaq as slaq
from dask_slaq.core.trials import Trials


@pytest.mark.slow
def test_models_that_do_not_fit_together_leave_and_nobody_is_killed_or_paused(
    tmp_path, monkeypatch
):
    """16 models, of which 5 fill a worker. Their states count as managed memory, and spill."""

    def train(number: int) -> int:
        import time

        import numpy as np

        import dask_slaq as slaq

        weights, step = slaq.resume() or (np.zeros(40 * 125_000), 0)
        while step < 12:
            time.sleep(0.12)
            weights += 1
            step += 1
            slaq.report(number + 1 / step, state=lambda step=step, weights=weights: (weights, step))
        assert (weights == step).all()
        return number

    is_dear = partialmethod(Trials.is_dear, part=4.0)  # also on a slow machine
    monkeypatch.setattr(Trials, "is_dear", is_dear)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit="360MB", dashboard_address=None,
            silence_logs=logging.CRITICAL, local_directory=str(tmp_path),
        ) as cluster,
        Client(cluster) as client,
    ):  # fmt: skip
        client.register_plugin(slaq.SlaqPlugin())
        workers = cluster.scheduler.workers
        with slaq.search("grid", steps=12) as search:
            futures = client.map(train, range(16), pure=False)
            paused, spilled, managed, migrating = False, 0, 0, 0
            while not all(future.done() for future in futures):
                some = list(workers.values())
                paused |= any(ws.status == Status.paused for ws in some)
                spilled = max(spilled, sum(ws.memory.spilled for ws in some))
                managed = max(managed, sum(ws.nbytes for ws in some))
                migrating = max(migrating, sum(t["state"] == "migrating" for t in search.trials()))
                time.sleep(0.05)
            assert client.gather(futures) == list(range(16))
        assert not paused
        assert not cluster.scheduler.get_events("worker-restart-memory")
        assert migrating >= 4 and min(managed, spilled) >= 4 * 40e6
    gc.collect()
