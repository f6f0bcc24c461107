"""Import path for the benchmarks, which are not part of the package: their tests run nightly."""

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))
#: What other tests rest on: the virtual clock, and jobs and curves that simulations share.
DAILY = [HERE / "virtual", HERE / "test_benchmarks.py"]


@pytest.hookimpl(tryfirst=True)  # before those that are marked are left out
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents and not {item.path, item.path.parent} & {*DAILY}:
            item.add_marker(pytest.mark.slow)
