"""Jobs that ended on an earlier scheduler: on the board, in the history, and among ended ones."""

import asyncio
import os

import pytest
from driving import on_virtual_clock

import dask_slaq as slaq

LOSSES = [1 / (k + 1) for k in range(100)]


def test_curves_of_ended_jobs_survive_a_restart(tmp_path):
    pytest.importorskip("bokeh")
    from dask_slaq.scheduler.board.data import data_of

    path, names = str(tmp_path / "runs.db"), [f"train-{n}" for n in range(3)]

    async def first(client, cluster, plugin):
        for name in names:
            async with slaq.job(name, client=client, owner="ann") as job:
                for loss in LOSSES:
                    job.report(loss)
                    await asyncio.sleep(1.0)

    async def second(client, cluster, plugin):
        while not plugin.jobs.ended:
            await asyncio.sleep(0.1)
        history, board = await slaq.history(client), data_of(cluster.scheduler)
        assert sorted(history.job.values) == names == sorted(board.losses["job"])
        for name in names:
            loss = history.loss.sel(job=name).dropna("epoch").values
            assert len(loss) >= 20 and (loss[1:] <= loss[:-1]).all() and loss[-1] == 0.01
        assert min(map(len, board.losses["x"])) >= 20
        assert sorted(board.jobs["job"]) == names
        assert [each["job"] for each in await slaq.ended(client)] == names
        async with slaq.job(names[0], client=client, owner="ann") as job:
            job.report(2.0)
            plugin.run_once()
        assert len(await slaq.ended(client)) == 4

    on_virtual_clock(first, [2], memory=path)
    assert os.path.getsize(path) < 200_000
    on_virtual_clock(second, [2], memory=path)
