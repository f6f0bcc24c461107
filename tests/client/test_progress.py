"""`progress` called inside of an open block ends with its tasks: the block cannot end meanwhile."""

import threading
import time

import pytest
from distributed.utils_test import inc

import dask_slaq as slaq

PATIENCE = 60


@pytest.fixture(scope="module", autouse=True)
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(epoch="100ms"))


def train(params):
    for k in range(5):
        time.sleep(0.01)
        slaq.report(params + 1 / (k + 1))
    return params


@pytest.mark.parametrize("what", ["search", "job", "empty", "all", "nested", "stopped"])
def test_progress_in_its_block_ends_with_its_tasks(client, what, capsys):
    states = []

    def watch(names):
        slaq.progress(names, client, interval=0.05, notebook=False)

    def program():
        block = slaq.search if what in ("search", "stopped") else slaq.job
        with block(what, client=client) as opened:
            if what in ("search", "stopped"):
                futures = client.map(train, [1.0, 2.0, 3.0], pure=False)
            else:
                futures = [] if what == "empty" else client.map(inc, range(3), pure=False)
            if what == "stopped":
                opened.stop()
            if what == "nested":
                with slaq.job("inner", client=client):
                    watch([what, "inner"])
            else:
                watch(None if what == "all" else what)
            states.extend(future.status for future in futures)

    thread = threading.Thread(target=program, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert not thread.is_alive()
    assert states == ["finished"] * (0 if what == "empty" else 3) or what == "stopped"
    assert "pending" not in states
