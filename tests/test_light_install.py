"""A scheduler with the plugin needs Dask, NumPy and SciPy only.

``python tests/test_light_install.py`` tries it on an installation without all other libraries.
"""

import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from distributed import Client

import dask_slaq as slaq

#: Dependencies that only those who train with them, or look at a history, need.
OTHERS = {"dask_glm", "dask_ml", "matplotlib", "numba", "pandas", "sklearn", "xarray"}
MODULES = "sorted({name.partition('.')[0] for name in __import__('sys').modules})"


def drive(client: Client) -> dict[str, set[str]]:
    """Run a search and two jobs, and return the modules of the scheduler and of the worker."""

    def train(rate):
        loss = 1.0
        for _ in range(20):
            loss *= 1 - rate
            slaq.report(loss)

    with slaq.search("search", steps=20, client=client) as search:
        trials = client.map(train, [0.01 * k for k in range(1, 9)])
    client.gather(trials)
    assert {trial["iteration"] for trial in search.trials()} == {20}
    with slaq.job("one", client=client) as one, slaq.job("two", client=client) as two:
        for k in range(1, 31):
            for job in (one, two):
                job.report(client.submit(pow, k, -1, pure=False).result())
        while slaq.status(client)["jobs"]["one"]["loss"] is None:  # until an epoch has ended
            client.submit(abs, 1, pure=False).result()
        assert slaq.explain("one", client)["text"]
    assert slaq.status(client)["failed"] is None
    on_worker = client.run(eval, MODULES)
    return {
        "scheduler": set(client.run_on_scheduler(eval, MODULES)),
        "worker": set().union(*on_worker.values()),
    }


def try_cluster(folder: Path) -> dict[str, set[str]]:
    """Start a scheduler and a worker as their commands do, and drive them."""
    at = ["--scheduler-file", str(folder / "scheduler.json")]
    preload = ["--preload", "dask_slaq", "--epoch", "50ms"]
    commands = [
        ["scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", *at, *preload],
        ["worker", "--nthreads", "2", "--no-dashboard", *at],
    ]
    with ExitStack() as stack:
        for command in commands:
            command = [sys.executable, "-m", "dask", *command]
            process = stack.enter_context(subprocess.Popen(command))
            stack.callback(process.terminate)
        return drive(stack.enter_context(Client(scheduler_file=at[1], timeout=300)))


def test_neither_scheduler_nor_worker_imports_what_only_users_need(tmp_path):
    for place, modules in try_cluster(tmp_path).items():
        assert {"dask_slaq", "numpy"} <= modules, place
        assert sorted(modules & OTHERS) == [], place


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        try_cluster(Path(folder))
    print("without", *sorted(OTHERS - sys.modules.keys()))
