"""Loops of asynchronous clients report, each test on its own cluster."""

from __future__ import annotations

import pytest
from dask_ml.model_selection import IncrementalSearchCV
from distributed.utils_test import gen_cluster
from sklearn.linear_model import SGDClassifier

from dask_slaq.adapters import instrument
from dask_slaq.adapters.observing import session as blocks
from dask_slaq.adapters.observing.worker_reports import Mailbox


@pytest.mark.filterwarnings("ignore")
@gen_cluster(client=True)
async def test_a_search_reports(c, s, a, b, rows):
    search = IncrementalSearchCV(
        SGDClassifier(random_state=0), {"alpha": [1e-4, 1.0]}, max_iter=2, random_state=0
    )
    losses = []
    with instrument(losses.append):
        await search.fit(rows.x, rows.logistic, classes=[0.0, 1.0])
    assert -losses[-1] == max(h["score"] for h in search.history_)


def train(route):
    for k in range(3):
        route.report(k)


@gen_cluster(client=True)
async def test_tasks_report(c, s, a, b):
    losses = []
    with blocks.opened(losses.append) as block:
        inbox = Mailbox(block)
        await c.submit(train, inbox.route)
    assert losses == [0.0, 1.0, 2.0]
