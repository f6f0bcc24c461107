"""Pytest plugin for distributed's own tests.

`gen_cluster` stops a hanging test after SLAQ_SUITE_PATIENCE seconds. SLAQ_SUITE_QUICK skips tests
that start their own processes, which take most of the time.
"""

from __future__ import annotations

import os
from typing import Any


def pytest_configure(config: Any) -> None:
    """Change the timeout of tests that do not set one."""
    from distributed.utils_test import _TEST_TIMEOUT, gen_cluster

    if patience := os.environ.get("SLAQ_SUITE_PATIENCE"):
        gen_cluster.__defaults__ = tuple(
            int(patience) if value == _TEST_TIMEOUT else value
            for value in gen_cluster.__defaults__ or ()
        )


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Skip tests whose event loop runs in a thread, since their schedulers are processes."""
    if not os.environ.get("SLAQ_SUITE_QUICK"):
        return
    left_out = [item for item in items if "loop" in item.fixturenames]
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)
