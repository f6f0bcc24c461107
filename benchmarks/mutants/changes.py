"""Changes that make a mutant of a module: a comparison, a bound, a condition, a statement left out.

What no test could notice is not changed: texts, annotations, docstrings, representations, and what
is written to logs.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

__all__ = ["Mutation", "mutations"]

#: Operators and what takes their place.
INSTEAD: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,  # codespell:ignore
    ast.NotIn: ast.In,  # codespell:ignore
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
}
#: Functions and what takes their place.
OTHER = {"min": "max", "max": "min", "any": "all", "all": "any"}


#: Methods and functions that are left as they are.
UNCHANGED = ("__repr__", "__str__", "_repr_html_")
#: Names of the objects that write logs, and arguments that only guard against mistakes.
LOGS = ("logger", "logging", "warnings")
GUARDS = ("strict", "exc_info", "stacklevel")


class Mutation(NamedTuple):
    """One change of a module; `apply` makes it in the tree from which it was found."""

    line: int
    what: str
    apply: Callable[[], None]


def mutations(tree: ast.Module) -> Iterator[Mutation]:
    """Yield the changes that can be made to a module. Annotations and docstrings are left out."""
    for node in _code(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Compare):
            for i, op in enumerate(node.ops):
                new = INSTEAD[type(op)]()
                yield _change(line, node.ops, i, new, f"{_name(op)} to {_name(new)}")
        elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in INSTEAD:
            new = INSTEAD[type(node.op)]()
            yield _set(line, node, "op", new, f"{_name(node.op)} to {_name(new)}")
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield _set(line, node, "op", ast.UAdd(), "not left out")
        elif isinstance(node, ast.Constant) and type(node.value) in (bool, int, float):
            value = not node.value if isinstance(node.value, bool) else node.value + 1
            yield _set(line, node, "value", value, f"{node.value} to {value}")
        elif isinstance(node, ast.If | ast.IfExp | ast.While):
            test = ast.Constant(False)
            yield _set(
                line, node, "test", test, f"condition {ast.unparse(node.test)[:60]} to False"
            )
        elif isinstance(node, ast.Return) and not _is_falsy(node.value):
            yield _set(line, node, "value", ast.Constant(None), "return None")
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) in OTHER:
            name: Any = node.func
            yield _set(line, name, "id", OTHER[name.id], f"{name.id} to {OTHER[name.id]}")
        body = getattr(node, "body", None)
        for i, statement in enumerate(body if isinstance(body, list) else ()):
            left_out = isinstance(statement, ast.AugAssign | ast.Delete) or (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Call)
                and not _only_told(statement.value)
            )
            if left_out:
                what = f"left out: {ast.unparse(statement)[:60]}"
                yield _change(statement.lineno, body, i, ast.Pass(), what)


def _code(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a module that are executed in functions, without annotations."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in UNCHANGED:
            yield node
            for statement in node.body:
                if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    continue  # walked on its own
                yield from _inside(statement)


def _inside(node: ast.AST) -> Iterator[ast.AST]:
    if _only_told(node):
        return
    yield node
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            inner = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if isinstance(child, ast.AST) and name != "annotation" and not inner:
                yield from _inside(child)


def _only_told(node: ast.AST) -> bool:
    """Return whether a node only tells a reader something, or guards against a mistake."""
    if isinstance(node, ast.keyword):
        return node.arg in GUARDS
    if isinstance(node, ast.IfExp):  # between two texts
        return _is_text(node.body) and _is_text(node.orelse)
    function = node.func if isinstance(node, ast.Call) else None
    return isinstance(function, ast.Attribute) and getattr(function.value, "id", None) in LOGS


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _is_falsy(node: ast.expr | None) -> bool:
    """Return whether what is returned is None already, or what callers take for the same."""
    return node is None or (isinstance(node, ast.Constant) and not node.value)


def _name(node: ast.AST) -> str:
    return type(node).__name__


def _change(line: int, where: list[Any], i: int, new: ast.AST, what: str) -> Mutation:
    def apply() -> None:
        where[i] = new

    return Mutation(line, what, apply)


def _set(line: int, node: ast.AST, field: str, new: object, what: str) -> Mutation:
    return Mutation(line, what, lambda: setattr(node, field, new))
