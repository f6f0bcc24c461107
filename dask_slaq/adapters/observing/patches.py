"""Puts loops under observation process-wide while any block is open, and undoes it exactly.

Blocks are counted: the first one installs, the last one restores the very objects that were there.
A module that is not imported yet is left alone; if it is imported while a block is open, it is
patched at the end of its import. Lock order: an import lock may be held when ours is taken, never
the other way round.
"""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CellType, ModuleType
from typing import Any

from dask_slaq.adapters.observing.loops import Loop
from dask_slaq.adapters.observing.session import warn_once


class Place:
    """Where a loop's function is kept: an attribute of its module, or a cell of a closure."""

    def __init__(self, holder: ModuleType | CellType, name: str) -> None:
        self._holder = holder
        self._name = name if isinstance(holder, ModuleType) else "cell_contents"

    def get(self) -> Any:
        return getattr(self._holder, self._name)

    def set(self, value: Any) -> None:
        setattr(self._holder, self._name, value)


def find(loop: Loop, module: ModuleType) -> Place:
    """Find where `loop` is kept in `module`; LookupError says what is missing."""
    public = getattr(module, loop.name, None)
    if public is None:
        raise LookupError("is not there")
    if loop.cell is None:
        return Place(module, loop.name)
    free = getattr(getattr(public, "__code__", None), "co_freevars", ())
    if loop.cell not in free:
        raise LookupError(f"is no wrapper around {loop.cell!r}")
    return Place(public.__closure__[free.index(loop.cell)], loop.cell)


class Patches:
    """The patches of some loops; a context manager that may be entered by many threads at once.

    Parameters
    ----------
    loops : iterable of Loop
    """

    def __init__(self, loops: Iterable[Loop]) -> None:
        self._loops: dict[str, list[Loop]] = {}
        for loop in loops:
            self._loops.setdefault(loop.module, []).append(loop)
        self._lock = threading.RLock()
        self._blocks = 0
        self._installed: dict[str, list[tuple[Place, Any, Any]]] = {}
        self._finder = AfterImport(self._loops, self._imported)

    def __enter__(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                sys.meta_path.insert(0, self._finder)
        try:
            self._install()
        except BaseException:  # interrupted while waiting for an import
            self.__exit__()
            raise

    def _install(self) -> None:
        # An import that begins now is patched by the finder; this is for those begun before.
        for name, module in imported(self._loops):
            self._imported(name, module)

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks:
                return
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
            for installed in self._installed.values():
                for place, original, replacement in installed:
                    if place.get() is replacement:  # else it is somebody else's by now
                        place.set(original)
            self._installed.clear()

    def states(self) -> dict[str, str]:
        """For each loop whether it is observed now, or why not."""
        return {str(loop): _state(loop) for loops in self._loops.values() for loop in loops}

    def _imported(self, name: str, module: ModuleType) -> None:
        """Patch a module that is there; nothing to do if it is patched or no block is open."""
        with self._lock:
            if not self._blocks or name in self._installed:
                return
            installed = self._installed[name] = []
            for loop in self._loops[name]:
                try:
                    place = find(loop, module)
                    original = place.get()
                    mismatch = loop.mismatch(original)
                    if mismatch:
                        raise LookupError(mismatch)
                    replacement = loop.observed(original)
                    place.set(replacement)
                    installed.append((place, original, replacement))
                except Exception as error:
                    warn_once(str(loop), f"{loop} {error}: its iterations are not reported")


def _state(loop: Loop) -> str:
    module = sys.modules.get(loop.module)
    if module is None or _initializing(module):
        return "library not imported"
    try:
        original = find(loop, module).get()
    except LookupError as error:
        return f"cannot be observed: {error}"
    if getattr(original, "observed", None) is loop:
        return "active"
    mismatch = loop.mismatch(original)
    return f"cannot be observed: {mismatch}" if mismatch else "ready for a block"


def imported(names: Iterable[str]) -> Iterator[tuple[str, ModuleType]]:
    """Modules that are imported, with their names; waits for imports that others have begun."""
    for name in names:
        module = sys.modules.get(name)
        if module is not None and _initializing(module):
            module = _when_imported(name)
        if module is not None:
            yield name, module


def _initializing(module: ModuleType) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _when_imported(name: str) -> ModuleType | None:
    """Wait for an import that another thread has begun; None if it is our own, or fails."""
    try:
        module = importlib.import_module(name)
    except Exception:
        return None
    return None if _initializing(module) else module


class AfterImport(MetaPathFinder):
    """Calls ``done(name, module)`` at the end of the import of each module in `names`."""

    def __init__(self, names: Iterable[str], done: Callable[[str, ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._done = done

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of our modules as the other finders do, with our loader around theirs."""
        if fullname not in self._names:
            return None
        for finder in self._others():
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = ThenDone(spec.loader, self._done)
                return spec
        return None

    def _others(self) -> list[Any]:
        """The finders that come after this one; another of this class may be among them."""
        finders = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else []


class ThenDone(Loader):
    """Stands in for a loader during one import, and leaves no trace on the module."""

    def __init__(self, loader: Any, done: Callable[[str, ModuleType], None]) -> None:
        self._loader = loader
        self._done = done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._done(module.__name__, module)
