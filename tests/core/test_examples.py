"""The examples in docstrings of the core tell the truth."""

import doctest
from importlib import import_module
from pathlib import Path

import pytest

import dask_slaq.core

CORE = Path(dask_slaq.core.__file__).parent
MODULES = [
    ".".join(("dask_slaq.core", *path.relative_to(CORE).with_suffix("").parts))
    for path in sorted(CORE.rglob("*.py"))
    if ">>> " in path.read_text(encoding="utf-8")
]


@pytest.mark.parametrize("module", MODULES)
def test_examples(module):
    found = doctest.testmod(import_module(module))
    assert found.attempted > 0 and found.failed == 0
