"""Configuration of the test session, Dask's own test fixtures, and a small cluster.

Order matters: `distributed.utils_test` keeps a copy of the configuration when it is
imported and goes back to it around each cluster test, so what every test shall see,
our defaults included, is set before that import.
"""

import os
import sys

# Hundreds of processes that tests start would compile the package again, if they may not keep it.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Threads that wait for each other's tiny matrices take the processor from other tests. Read when
# numpy is loaded, here and in the processes that tests start.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import gc
from collections.abc import Iterator

import dask
import hypothesis
import pytest

import dask_slaq  # noqa: F401  (brings its configuration defaults)

sys.dont_write_bytecode = False
dask.config.set({"distributed.scheduler.validate": True})
# How busy a machine is, is not a property of the code. The nightly run draws more examples, and new
# ones each time, by `--hypothesis-profile=thorough`.
for profile, examples in (("behaviour", 12), ("thorough", 200)):
    hypothesis.settings.register_profile(
        profile,
        deadline=None,
        max_examples=examples,
        derandomize=profile == "behaviour",
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
hypothesis.settings.load_profile("behaviour")

from distributed import Client  # noqa: E402
from distributed.client import _current_client  # noqa: E402
from distributed.utils_test import cleanup, loop, loop_in_thread  # noqa: E402, F401
from driving import small_cluster  # noqa: E402

#: Tests that may be run once more when they fail, by file and name, each with the reason: what they
#: assert depends on the machine. All others pass the first time, or fail.
MAY_BE_RERUN: dict[str, str] = {
    "tests/scheduler/pools/test_no_idle_thread.py"
    "::test_no_thread_stays_free_beside_a_task_that_may_take_it": (
        "keys are random: with Dask 2025.1.0 one of five runs looks just when a move begins to pay"
    ),
    "tests/scheduler/trials/test_large_states.py"
    "::test_models_that_do_not_fit_together_leave_and_nobody_is_killed_or_paused": (
        "Dask pauses a process of 360 MB by what it holds at one sample: a busy machine frees late"
    ),
    "tests/scheduler/trials/test_searches.py"
    "::test_the_best_models_are_ready_first_and_all_results_are_the_same": (
        "models of 5 ms a step are ready before a busy scheduler has heard of the others"
    ),
}

#: Slow tests in files that are programs, too, and run where there is no pytest.
SLOW = {"test_readme_runs", "test_neither_scheduler_nor_worker_imports_what_only_users_need"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests in `MAY_BE_RERUN`. A rerun anywhere else would hide a fault that is rare."""
    for item in items:
        name = getattr(item, "originalname", item.name)
        if name in SLOW:
            item.add_marker(pytest.mark.slow)
        if f"{item.path.relative_to(item.config.rootpath).as_posix()}::{name}" in MAY_BE_RERUN:
            item.add_marker(pytest.mark.flaky(reruns=1))


def pytest_collection_finish() -> None:
    """Keep what is imported by now out of garbage collections, of which cluster tests make many."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def same_default_scheduler() -> Iterator[None]:
    """A test leaves Dask's default scheduler and client as it found them, for all that follow."""
    before = dask.config.get("scheduler", None), _current_client.get()
    yield
    after = dask.config.get("scheduler", None), _current_client.get()
    dask.config.set(scheduler=before[0])
    _current_client.set(before[1])
    assert after == before


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    """A client of a small cluster that the tests of a module share."""
    with small_cluster() as client:
        yield client


@pytest.fixture
def local_client(loop) -> Iterator[Client]:  # noqa: F811
    """A client of a small cluster of its own."""
    with small_cluster(loop=loop) as client:
        yield client
