"""A pytest plugin for distributed's own tests.

`gen_cluster` ends a test that hangs after SLAQ_SUITE_PATIENCE seconds. With SLAQ_SUITE_QUICK tests
that start processes of their own are left out, which take most of the time.
"""

from __future__ import annotations

import os
from typing import Any


def pytest_configure(config: Any) -> None:
    """Change the timeout of tests that name none."""
    from distributed.utils_test import _TEST_TIMEOUT, gen_cluster

    if patience := os.environ.get("SLAQ_SUITE_PATIENCE"):
        gen_cluster.__defaults__ = tuple(
            int(patience) if value == _TEST_TIMEOUT else value
            for value in gen_cluster.__defaults__ or ()
        )


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Leave out tests whose event loop runs in a thread: their schedulers are processes."""
    if not os.environ.get("SLAQ_SUITE_QUICK"):
        return
    left_out = [item for item in items if "loop" in item.fixturenames]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
