"""Loops of asynchronous clients report and stop, each test on its own cluster."""

import logging

import pytest
from adapters.libraries import reported
from dask_ml.model_selection import IncrementalSearchCV
from distributed.utils_test import gen_cluster
from sklearn.linear_model import SGDClassifier

from dask_slaq.adapters.observing import worker_reports
from dask_slaq.adapters.observing.worker_reports import Address


@pytest.mark.filterwarnings("ignore")
@gen_cluster(client=True)
async def test_a_search_reports(c, s, a, b, rows):
    search = IncrementalSearchCV(
        SGDClassifier(random_state=0), {"alpha": [1e-4, 1.0]}, max_iter=2, random_state=0
    )
    with reported() as losses:
        await search.fit(rows.x, rows.logistic, classes=[0.0, 1.0])
    assert -losses[-1] == max(h["score"] for h in search.history_)


@gen_cluster(client=True)
async def test_tasks_in_lockstep_end_with_the_same_round(c, s, a, b):
    """Also if one of them is a round ahead when the stop arrives."""
    address = Address("lockstep", None, b"")
    here, there = ([w.address] for w in (a, b))
    assert not await c.submit(worker_reports.ends_with, address, 4, workers=here, pure=False)
    assert not await c.submit(worker_reports.ends_with, address, 5, workers=there, pure=False)
    await worker_reports.end_on_workers(c, "lockstep")
    ends = [
        await c.submit(worker_reports.ends_with, address, number, workers=where, pure=False)
        for where, number in ((here, 5), (here, 6), (there, 6))
    ]
    assert ends == [False, True, True]


def hold_on_the_first(inbox, dask_worker):
    if dask_worker.name != 0:
        raise ImportError("no such package")
    return worker_reports.Gate().passed


@gen_cluster(client=True)
async def test_unless_all_workers_can_stop_none_does(c, s, a, b, caplog, monkeypatch):
    address = Address("mixed", None, b"")
    monkeypatch.setattr(worker_reports, "hold", hold_on_the_first)
    with caplog.at_level(logging.WARNING):
        await worker_reports.end_on_workers(c, "mixed")
    assert "cannot be stopped and goes on: ImportError" in caplog.text
    for where in (a, b):
        worker_reports._gates["mixed", where.address].held = True
        ends = c.submit(worker_reports.ends_with, address, 9, workers=[where.address], pure=False)
        assert not await ends
