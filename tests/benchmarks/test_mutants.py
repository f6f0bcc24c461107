"""Mutants are the package with one change each, which the tests are to catch."""

from __future__ import annotations

import ast

from benchmarks.mutants import mutations

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
    return min(values)
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
