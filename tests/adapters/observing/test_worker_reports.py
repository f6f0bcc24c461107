"""Losses that tasks report on workers reach the client's block."""

import contextvars
import itertools
import pickle
import subprocess
import sys
import threading
import warnings

import cloudpickle
import dask
import pytest
from driving import PATIENCE

from dask_slaq.adapters.dask_glm import and_loss
from dask_slaq.adapters.dask_ml import then_report
from dask_slaq.adapters.observing import session as blocks
from dask_slaq.adapters.observing.worker_reports import Address, Mailbox


def train(route, n):
    for k in range(n):
        route.report(float(k))
    return n


def train_a_block(route, loss):
    route.report(loss, with_result=True)
    return loss


def test_a_last_report_travels_with_the_result(client):
    losses = []
    with blocks.opened(losses.append) as block:
        inbox = Mailbox(block, "mylib")
        for k in range(20):
            assert client.submit(train_a_block, inbox.route, float(k)).result() == k
            assert losses[-1] == k
    assert losses == [float(k) for k in range(20)]
    sent = client.run(lambda dask_worker: list(dask_worker.batched_stream.recent_message_log))
    mine = [
        [message["op"] for message in batch]
        for batch in itertools.chain.from_iterable(sent.values())
        if any(m.get("msg", {}).get("inbox") == inbox.route.inbox for m in batch)
    ]
    assert len(mine) == 20
    # A message that was due anyway may take the report along just before the task ends.
    assert sum({"log-event", "task-finished"} <= set(ops) for ops in mine) >= 3


def test_reports_of_two_blocks_do_not_mix(client):
    outer, inner = [], []
    with blocks.opened(outer.append) as first, blocks.opened(inner.append) as second:
        inboxes = Mailbox(first, "mylib"), Mailbox(second, "mylib")
        a = client.submit(train, inboxes[0].route, 3, pure=False)
        b = client.submit(train, inboxes[1].route, 5, pure=False)
        client.gather([a, b])
        assert (len(outer), len(inner)) == (3, 5)


def test_nothing_arrives_after_the_block_or_without_the_inbox(client):
    losses = []
    with blocks.opened(losses.append) as block:
        inbox, lost = Mailbox(block, "mylib"), Mailbox(block, "mylib")
        route = lost.route
        del lost
        client.submit(train, route, 3, pure=False).result()
    client.submit(train, inbox.route, 3, pure=False).result()
    assert losses == []


def test_without_a_cluster_threads_of_this_process_report():
    losses = []
    with blocks.opened(losses.append) as block:
        inbox = Mailbox(block, "mylib")
        with dask.config.set(scheduler="threads"):
            assert dask.delayed(train)(inbox.route, 4).compute() == 4
        assert losses == [0.0, 1.0, 2.0, 3.0]


def test_a_report_runs_in_the_context_of_the_fit(client):
    variable = contextvars.ContextVar("variable", default="elsewhere")
    seen = []

    def report(loss):
        seen.append((variable.get(), threading.current_thread() is threading.main_thread()))

    with blocks.opened(report) as block:
        variable.set("here")
        inbox = Mailbox(block, "mylib")
        client.submit(train, inbox.route, 2, pure=False).result()
    assert seen == [("here", False)] * 2


def test_a_failing_report_costs_one_warning_and_no_connection(client):
    def report(loss):
        raise OSError("no network")

    with warnings.catch_warnings(record=True) as warned, blocks.opened(report) as block:
        warnings.simplefilter("always")
        inbox = Mailbox(block, "mylib")
        assert client.submit(train, inbox.route, 3, pure=False).result() == 3
        assert client.submit(sum, [1, 2]).result() == 3
    assert ["no network" in str(w.message) for w in warned] == [True]


@pytest.mark.parametrize("loss", ["high", None, object()])
def test_what_is_no_number_ends_no_task(client, loss):
    losses = []
    with blocks.opened(losses.append) as block:
        inbox = Mailbox(block, "mylib")
        assert client.submit(inbox.route.report, loss, pure=False).result() is None
        assert losses == []


def test_a_route_to_nowhere_is_harmless():
    route = pickle.loads(pickle.dumps(Address("nobody", None, b"")))
    route.report(1.0)


ELSEWHERE = """
import sys
sys.modules["dask_slaq"] = None  # cannot be imported
import cloudpickle
from sklearn.linear_model import SGDRegressor
import numpy as np
update, partial_fit, f = cloudpickle.loads(bytes.fromhex(sys.stdin.read()))
x, y, z = np.eye(2), np.ones(2), np.ones(2)
print(update(x, y, z, z, z, 1.0, f)[1])
print(partial_fit(SGDRegressor(), x, y, {"_slaq_route": ("inbox", None)}).coef_.shape)
"""


@pytest.mark.slow
def test_tasks_run_where_this_package_is_not_installed():
    from dask_ml._partial import _partial_fit

    def update(X, y, beta, *others):
        return beta

    def f(beta, X, y, z, u, rho):
        return float(((y - X @ beta) ** 2).sum() + u.sum())

    tasks = and_loss(update), then_report(_partial_fit), f
    sent = cloudpickle.dumps(tasks).hex()
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=sent,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["0.0", "(2,)"]
