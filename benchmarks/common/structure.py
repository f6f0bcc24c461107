"""What the source shows: circles of modules, and touch points with what is private to Dask."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["circles", "handlers_set", "imports", "private_names", "touch_points"]

#: What is Dask's: how its objects are called in this package.
THEIRS = {"scheduler", "_scheduler", "ws", "ts", "worker", "stealing", "PrometheusHandler", "comm"}
#: Parts of the package that run in Dask's processes.
INSIDE = ("scheduler", "worker", "client", "memory")


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


def private_names(path: Path) -> set[str]:
    """Return the private attributes of Dask's objects that a module reads or sets."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr):
            owner = node.value
            name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            if name in THEIRS:
                found.add(node.attr)
    return found


def handlers_set(folder: Path) -> set[str]:
    """Return the requests whose handlers the package replaces: ``handlers["..."] = ...``."""

    def targets() -> Iterator[str]:
        for path in (folder / "scheduler").rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Assign):
                    yield from map(ast.unparse, node.targets)

    matches = (re.fullmatch(r".*handlers\['(\w+)'\]", target) for target in targets())
    return {match[1] for match in matches if match}


def touch_points(folder: Path) -> dict[str, list[str]]:
    """Return what the package overrides, surrounds and reads of Dask's insides, by how."""
    from dask_slaq.scheduler.plugin import HOOKS
    from dask_slaq.scheduler.pools.seam import OVERRIDDEN

    private = {
        name
        for part in INSIDE
        for path in (folder / part).rglob("*.py")
        for name in private_names(path)
    }
    surrounded = {around[1] for around in HOOKS.values() if around is not None}
    return {
        "methods overridden": sorted(OVERRIDDEN),
        "handlers and periodic callbacks surrounded": sorted(surrounded | handlers_set(folder)),
        "private names read": sorted(private),
    }
