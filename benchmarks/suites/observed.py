"""A pytest plugin: the whole session of some library's tests runs inside an `instrument` block.

`distributed.utils_test` comes first: it keeps a copy of the configuration when it is imported.
What was seen is written to the file that SLAQ_SUITE_SEEN names.
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

#: What the session saw; a plugin that comes with this one adds to it.
seen: dict[str, Any] = {"losses": 0, "warnings": []}
_block = ExitStack()


def _count(loss: float) -> None:
    seen["losses"] += 1


class Listener(logging.Handler):
    """Notes what we log, each text once."""

    def emit(self, record: logging.LogRecord) -> None:
        """Take one message."""
        if (text := record.getMessage()) not in seen["warnings"]:
            seen["warnings"].append(text)


_listener = Listener(logging.WARNING)


def pytest_configure(config: Any) -> None:
    """Open the block."""
    logging.getLogger("dask_slaq").addHandler(_listener)
    _block.enter_context(dask_slaq.instrument(_count))


def pytest_unconfigure(config: Any) -> None:
    """Write down what was seen, and close the block."""
    from dask_slaq.versions import versions

    if path := os.environ.get("SLAQ_SUITE_SEEN"):
        Path(path).write_text(json.dumps({**seen, **versions()}))
    _block.close()
    logging.getLogger("dask_slaq").removeHandler(_listener)
