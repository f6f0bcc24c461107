"""The page on what the package relies on in Dask names all of it, and tests that are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from dask_slaq.scheduler.plugin import HOOKS
from dask_slaq.scheduler.pools.seam import OVERRIDDEN

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "touch-points.md").read_text()
FACTS = (ROOT / "tests" / "scheduler" / "test_dask_facts.py").read_text()
#: What is Dask's: how its objects are called in our code.
THEIRS = {"scheduler", "_scheduler", "ws", "ts", "worker", "stealing", "PrometheusHandler", "comm"}
INSIDE = [ROOT / "dask_slaq" / part for part in ("scheduler", "worker", "client", "memory")]


def private_names(path: Path) -> set[str]:
    """Private attributes of Dask's objects that a module reads or sets."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in THEIRS:
                found.add(node.attr)
    return found


def test_every_private_name_is_on_the_page():
    names = {name for part in INSIDE for path in part.rglob("*.py") for name in private_names(path)}
    assert {"_task_to_msg", "_task_prefix_count_global", "_collectors"} <= names
    assert [name for name in sorted(names) if f"`{name}`" not in PAGE] == []


@pytest.mark.parametrize("name", OVERRIDDEN)
def test_every_override_is_on_the_page(name):
    assert f"`{name}`" in PAGE


@pytest.mark.parametrize("name", sorted({around[1] for around in HOOKS.values() if around}))
def test_every_handler_that_is_surrounded_is_on_the_page(name):
    assert f"`{name}`" in PAGE


def handlers_set() -> set[str]:
    """Requests whose handlers are replaced: ``handlers["..."] = ...``."""
    found = set()
    for path in INSIDE[0].rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                match = re.fullmatch(r".*handlers\['(\w+)'\]", ast.unparse(target))
                found |= {match[1]} if match else set()
    return found


def test_every_request_whose_handler_is_replaced_is_on_the_page():
    assert {"log_event", "adaptive_target"} <= handlers_set()
    assert [name for name in sorted(handlers_set()) if f"`{name}`" not in PAGE] == []


def test_every_fact_is_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| facts |" not in line]
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[3])]
    assert len(named) > 15
    assert [name for name in named if f"def test_{name}(" not in FACTS] == []
    for row in rows:
        facts = row.split("|")[3]
        for path in re.findall(r"`(tests/\S+)`", facts):
            assert (ROOT / path).exists()
        assert "`" in facts, row
