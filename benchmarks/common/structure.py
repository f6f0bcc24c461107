"""What the source shows: circles of modules, and touch points with what is private to Dask."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import NamedTuple

__all__ = ["Points", "circles", "handlers_set", "imports", "private_names", "touch_points"]

#: What is Dask's: how its objects are called in this package.
THEIRS = frozenset(
    {"scheduler", "_scheduler", "ws", "ts", "worker", "stealing", "PrometheusHandler", "comm"}
)
#: Modules of Dask that are private.
PRIVATE_MODULE = re.compile(r"(dask|distributed)\b.*\._")


def modules(folder: Path) -> dict[str, Path]:
    """Return the modules of a package by name."""
    paths = sorted(folder.rglob("*.py"))
    parts = {path: path.relative_to(folder.parent).with_suffix("").parts for path in paths}
    return {".".join(each).removesuffix(".__init__"): path for path, each in parts.items()}


def imports(folder: Path) -> dict[str, set[str]]:
    """Return what each module of a package imports of it, also for types alone or when called."""
    known = modules(folder)
    found: dict[str, set[str]] = {}
    for name, path in known.items():
        here: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module:
                of = {f"{node.module}.{each.name}" for each in node.names}
                here |= {full if full in known else node.module for full in of}
            elif isinstance(node, ast.Import):
                here |= {each.name for each in node.names}
        found[name] = (here & known.keys()) - {name}
    return found


def circles(folder: Path) -> list[tuple[str, ...]]:
    """Return the largest sets of modules that all import each other, directly or by others."""
    graph = imports(folder)
    reached = {name: _reached(graph, name) for name in graph}
    found = {
        tuple(sorted(other for other in graph if other in reached[name] and name in reached[other]))
        for name in graph
        if name in reached[name]
    }
    return sorted(found, key=lambda circle: (-len(circle), circle))


def _reached(graph: Mapping[str, set[str]], name: str) -> set[str]:
    """Return the modules that one imports, also by others; itself if it is in a circle."""
    found: set[str] = set()
    ahead = list(graph[name])
    while ahead:
        if (other := ahead.pop()) not in found:
            found.add(other)
            ahead.extend(graph[other])
    return found


class Points(NamedTuple):
    """Touch points of one kind: what is touched, and of these what is so at its first use only."""

    where: str
    how: str
    names: tuple[str, ...]
    at_first_use: tuple[str, ...] = ()


def private_names(path: Path, theirs: AbstractSet[str] = THEIRS) -> set[str]:
    """Return what a module reads or sets of what is private to Dask.

    These are private attributes of its objects, which are called by names in `theirs`; its private
    modules; and its functions whose code is looked for in frames.
    """
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)) if re.match(
                r"(dask|distributed)\b.*\._", module
            ):
                found.add(module)
            case ast.Call(
                func=ast.Name(id="getattr"), args=[owner, ast.Constant(value=str(name)), *_]
            ):
                if _called(owner) in theirs and _is_private(name):
                    found.add(name)
            case ast.Attribute(value=ast.Attribute(attr=name), attr="__code__"):
                found.add(name)
            case ast.Attribute(value=owner, attr=name):
                if _called(owner) in theirs and _is_private(name):
                    found.add(name)
    return found


def _called(owner: ast.expr) -> str:
    """Return by which name an object is called."""
    return owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")


def _is_private(name: str) -> bool:
    return re.fullmatch(r"_[a-z]\w*", name) is not None


def handlers_set(folder: Path) -> set[str]:
    """Return the requests whose handlers the package replaces: ``handlers["..."] = ...``."""

    def targets() -> Iterator[str]:
        for path in (folder / "scheduler").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign):
                    yield from map(ast.unparse, node.targets)

    matches = (re.fullmatch(r".*handlers\['(\w+)'\]", target) for target in targets())
    return {match[1] for match in matches if match}


def touch_points(folder: Path) -> list[Points]:
    """Return what the package overrides, surrounds and reads of Dask's insides."""
    from dask_slaq.scheduler.plugin import AT_FIRST_USE, SURROUNDED
    from dask_slaq.scheduler.pools.seam import OVERRIDDEN

    def private(parts: Iterable[str], *theirs: str) -> tuple[str, ...]:
        paths = (path for part in parts for path in (folder / part).rglob("*.py"))
        return tuple(sorted(set().union(*(private_names(p, THEIRS | {*theirs}) for p in paths))))

    surrounded = tuple(sorted({*SURROUNDED.values(), *handlers_set(folder)}))
    later = tuple(sorted(SURROUNDED[name] for name in AT_FIRST_USE))
    on_workers = private(("worker",), "pool", "executor")
    return [
        Points("scheduler", "methods overridden", tuple(sorted(OVERRIDDEN))),
        Points("scheduler", "handlers surrounded", surrounded, later),
        Points("scheduler", "private names read", private(("scheduler", "memory"))),
        Points("clients", "private names read", private(("client",), "client")),
        # All of these are of models that report, and of what they are called with.
        Points("workers", "private names read", on_workers, on_workers),
    ]
