"""Mutants are the package with one change each, which the tests are to catch."""

from __future__ import annotations

import ast

import pytest

from benchmarks.mutants import running
from benchmarks.mutants.changes import mutations
from benchmarks.mutants.running import Covering, Tree, catch

CODE = """
LIMIT = 3

def least(values: list[int] = [1], *, most: float = 2.0) -> int | None:
    \"\"\"Return the least value.\"\"\"
    found: dict[str, int] = {}
    found.clear()
    if not values and len(values) < 1:
        return None
    def inner(x):
        return x + 1
    logger.debug("found %d", 5)
    for one, other in zip(values, values, strict=True):
        pass
    return min(values)

def __repr__(self):
    return 4 if self else 5
"""


def test_every_change_gives_other_code_that_can_be_run():
    seen = set()
    for number, expected in enumerate(list(mutations(ast.parse(CODE)))):
        tree = ast.parse(CODE)
        list(mutations(tree))[number].apply()
        changed = ast.unparse(ast.fix_missing_locations(tree))
        compile(changed, "mutant", "exec")
        assert changed != ast.unparse(ast.parse(CODE))
        assert "LIMIT = 3" in changed and "Return the least value." in changed
        assert changed not in seen, expected.what
        assert "zip(values, values, strict=True)" in changed and "found %d', 5)" in changed
        assert "return 4 if self else 5" in changed
        seen.add(changed)
    assert {m.what for m in mutations(ast.parse(CODE))} >= {
        "left out: found.clear()",
        "And to Or",
        "Lt to LtE",
        "not left out",
        "min to max",
        "Add to Sub",
        "return None",
    }


MODULE = """
def least(values):
    return min(values)

def most(values):
    return max(values)
"""
TESTS = """
from dask_slaq.core.small import least, most

def test_least():
    assert least([1, 2]) == 1

def test_most_runs():
    most([1, 2])
"""


def test_a_mutant_meets_the_tests_that_execute_its_line(tmp_path, monkeypatch):
    """In a copy of the tree, which is as before afterwards."""
    pytest.importorskip("coverage")
    root = tmp_path / "root"
    for name, text in (
        ("dask_slaq/__init__.py", ""),
        ("dask_slaq/core/__init__.py", ""),
        ("dask_slaq/core/small.py", MODULE),
        ("tests/core/test_small.py", TESTS),
        ("setup.cfg", "[tool:pytest]\npythonpath = .\n"),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    monkeypatch.setattr(running, "ROOT", root)
    tree, covering = Tree(tmp_path / "copy"), Covering(tmp_path / "lines.jsonl")
    module = "dask_slaq/core/small.py"
    assert list(covering.follow(tree, [module], ["tests"])) == ["tests/core/test_small.py"]
    assert list(Covering(tmp_path / "lines.jsonl").follow(tree, [module], ["tests"])) == []
    found = {m.what: i for i, m in enumerate(mutations(ast.parse(MODULE)))}
    killed = catch(tree, covering, module, found["min to max"])
    assert killed["caught"] == "FAILED tests/core/test_small.py::test_least"
    alive = catch(tree, covering, module, found["max to min"])
    assert (alive["tests"], alive["caught"]) == (1, "")
    assert (tree.folder / module).read_text() == MODULE
