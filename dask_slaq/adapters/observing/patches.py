"""Process-wide patches of training loops, installed while any block is open."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import CellType, ModuleType
from typing import Any

from dask_slaq.adapters.observing.loops import Loop, StandIn
from dask_slaq.adapters.observing.session import warn_once

_MISSING = object()


class Replacements:
    """Attributes of modules, classes and cells that were replaced, to be put back."""

    def __init__(self) -> None:
        self._made: list[tuple[Any, str, Any, Any]] = []

    def put(self, *changes: tuple[Any, str, Any]) -> None:
        """Replace attributes, given with their holder and new value; none if one is not there."""
        made = [(holder, name, _own(holder, name), value) for holder, name, value in changes]
        for holder, name, _, value in made:
            setattr(holder, name, value)
        self._made += made

    def undo(self) -> None:
        """Put back what was there before, except where other code has replaced it since."""
        while self._made:
            holder, name, before, value = self._made.pop()
            if _own(holder, name) is not value:
                continue
            if before is _MISSING:
                delattr(holder, name)
            else:
                setattr(holder, name, before)


def _own(holder: Any, name: str) -> Any:
    """Return an attribute of an object; for a class, `_MISSING` if it is inherited or absent."""
    if isinstance(holder, type):
        return vars(holder).get(name, _MISSING)
    return getattr(holder, name)


def find(loop: Loop, module: ModuleType) -> tuple[Any, str]:
    """Return the module, class or cell that refers to the function of a loop, and the attribute.

    Raises `LookupError` if the function, or the closure cell ``loop.cell``, does not exist. The
    message is the predicate of a sentence that begins with the loop.
    """
    *classes, name = loop.name.split(".")
    holder: Any = module
    for inner in classes:
        holder = getattr(holder, inner, None)
    public = getattr(holder, name, None)
    if public is None:
        raise LookupError("is not there")
    if loop.cell is None:
        return holder, name
    free = getattr(getattr(public, "__code__", None), "co_freevars", ())
    if loop.cell not in free:
        raise LookupError(f"is no wrapper around {loop.cell!r}")
    cell: CellType = public.__closure__[free.index(loop.cell)]
    return cell, "cell_contents"


class WhileOpen:
    """Context manager that keeps modules patched while at least one thread is inside it.

    The first one to enter installs what `patch` replaces, the last one to leave restores the
    original objects. A module that is imported meanwhile is patched at the end of its import.
    """

    def __init__(self, names: Iterable[str]) -> None:
        # A thread that holds an import lock may take this lock, but not vice versa.
        self._lock = threading.RLock()
        self._blocks = 0
        self._patched: set[str] = set()
        self._replacements = Replacements()
        self._finder = AfterImport(names, self._imported)

    def patch(self, name: str, module: ModuleType) -> None:
        """Patch a module, by `_replacements`."""
        raise NotImplementedError

    def __enter__(self) -> None:
        with self._lock:
            self._blocks += 1
            if self._blocks == 1:
                sys.meta_path.insert(0, self._finder)
        try:
            # The finder patches imports that begin from now on; patch the earlier ones here.
            self._finder.finish_earlier()
        except BaseException:  # interrupted while waiting for an import
            self.__exit__()
            raise

    def __exit__(self, *exc_info: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks:
                return
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
            self._replacements.undo()
            self._patched.clear()

    def _imported(self, name: str, module: ModuleType) -> None:
        """Patch an imported module, unless it is patched already or no block is open."""
        with self._lock:
            if self._blocks and name not in self._patched:
                self._patched.add(name)
                self.patch(name, module)


class Patches(WhileOpen):
    """Context manager that keeps loops observed."""

    def __init__(self, loops: Iterable[Loop]) -> None:
        self._loops: dict[str, list[Loop]] = {}
        for loop in loops:
            self._loops.setdefault(loop.module, []).append(loop)
        super().__init__(self._loops)

    def states(self) -> dict[str, str]:
        """Return the state of each loop, by its full name.

        It is ``active``, ``ready for a block``, ``library not imported``, or ``cannot be observed``
        with the reason.
        """
        return {str(loop): _state(loop) for loops in self._loops.values() for loop in loops}

    def _stand_in(self, loop: Loop, function: Any) -> None:
        """Let stand-ins take the place of the globals that the observer of a loop replaces."""
        names, module = function.__globals__, sys.modules[function.__module__]
        for name, make in loop.watch.replaces.items():
            self._replacements.put((module, name, make(names[name])))
        for name in loop.watch.stands_in:
            if type(names[name]) is not StandIn:
                self._replacements.put((module, name, StandIn(names[name], name)))

    def patch(self, name: str, module: ModuleType) -> None:
        """Patch the loops of a module."""
        for loop in self._loops[name]:
            try:
                holder, attribute = find(loop, module)
                original = getattr(holder, attribute)
                mismatch = loop.mismatch(original)
                if mismatch:
                    raise LookupError(mismatch)
                self._stand_in(loop, original)
                self._replacements.put((holder, attribute, loop.observed(original)))
            except Exception as error:
                warn_once(str(loop), f"{loop} {error}: its iterations are not reported")


def _state(loop: Loop) -> str:
    module = sys.modules.get(loop.module)
    if module is None or _initializing(module):
        return "library not imported"
    try:
        original = getattr(*find(loop, module))
    except LookupError as error:
        return f"cannot be observed: {error}"
    if getattr(original, "observed", None) is loop:
        return "active"
    mismatch = loop.mismatch(original)
    return f"cannot be observed: {mismatch}" if mismatch else "ready for a block"


def _initializing(module: ModuleType) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _when_imported(name: str) -> ModuleType | None:
    """Wait for an import in another thread; None if it fails, or if it is in this thread."""
    try:
        module = importlib.import_module(name)
    except Exception:
        return None
    return None if _initializing(module) else module


class AfterImport(MetaPathFinder):
    """Finder that calls ``done(name, module)`` at the end of the import of the named modules."""

    def __init__(self, names: Iterable[str], done: Callable[[str, ModuleType], None]) -> None:
        self._names = tuple(names)
        self._done = done

    def finish_earlier(self) -> None:
        """Call ``done`` for the modules imported by now; wait for imports under way."""
        for name in self._names:
            module = sys.modules.get(name)
            if module is not None and _initializing(module):
                module = _when_imported(name)
            if module is not None:
                self._done(name, module)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules with the other finders, and wrap its loader."""
        if fullname not in self._names:
            return None
        finders = list(sys.meta_path)
        # Those after this one may include others of this class.
        for finder in finders[finders.index(self) + 1 :] if self in finders else ():
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = ThenDone(spec.loader, self._done)
                return spec
        return None


class ThenDone(Loader):
    """Loader that wraps another one for one import and leaves no trace on the module."""

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
