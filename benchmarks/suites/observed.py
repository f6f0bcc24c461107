"""Pytest plugin that runs a library's whole test session inside an `instrument` block.

`distributed.utils_test` is imported first, because it copies the configuration on import. The
observations are written to the file named by SLAQ_SUITE_SEEN.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import distributed.utils_test  # noqa: F401

import dask_slaq

#: Observations of the session; `benchmarks.suites.jobs` adds to them.
seen: dict[str, Any] = {"losses": 0, "warnings": []}
_block = ExitStack()


def _count(loss: float) -> None:
    seen["losses"] += 1


class Listener(logging.Handler):
    """Log handler that records the warnings of `dask_slaq`, each text once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Record one message."""
        if (text := record.getMessage()) not in seen["warnings"]:
            seen["warnings"].append(text)


_listener = Listener(logging.WARNING)


def pytest_configure(config: Any) -> None:
    """Open the `instrument` block."""
    logging.getLogger("dask_slaq").addHandler(_listener)
    _block.enter_context(dask_slaq.instrument(_count))


def pytest_unconfigure(config: Any) -> None:
    """Write the observations, and close the block."""
    from dask_slaq.adapters import loop_states, repairs

    if path := os.environ.get("SLAQ_SUITE_SEEN"):
        found = {**seen, "adapters": loop_states(), "repairs": repairs.states()}
        Path(path).write_text(json.dumps(found))
    _block.close()
    logging.getLogger("dask_slaq").removeHandler(_listener)
