"""Process-wide patches of training loops, installed while any block is open.

Open blocks are counted: the first one installs the patches, the last one to close restores the
original objects. A module that is not imported yet is left alone; if it is imported while a block
is open, it is patched at the end of its import.

Lock order: a thread that holds an import lock may take the lock of `Patches`, but not vice versa.
"""

from __future__ import annotations

import functools
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
    """Location of a loop's function: an attribute of its module or class, or a cell of a closure.

    Parameters
    ----------
    holder : module, class or cell
        Object that refers to the function.
    name : str
        Name of the attribute; ignored for a cell.
    """

    def __init__(self, holder: ModuleType | type | CellType, name: str) -> None:
        self._holder = holder
        self._name = "cell_contents" if isinstance(holder, CellType) else name

    def get(self) -> Any:
        """Return the object at this place."""
        return getattr(self._holder, self._name)

    def set(self, value: Any) -> None:
        """Put `value` at this place."""
        setattr(self._holder, self._name, value)


def find(loop: Loop, module: ModuleType) -> Place:
    """Find the place of a loop's function in its module.

    Parameters
    ----------
    loop : Loop
    module : module
        The imported module ``loop.module``.

    Returns
    -------
    Place

    Raises
    ------
    LookupError
        If the function, or the closure cell ``loop.cell``, does not exist. The message completes a
        sentence that begins with the loop.
    """
    *classes, name = loop.name.split(".")
    holder: Any = functools.reduce(lambda part, inner: getattr(part, inner, None), classes, module)
    public = getattr(holder, name, None)
    if public is None:
        raise LookupError("is not there")
    if loop.cell is None:
        return Place(holder, name)
    free = getattr(getattr(public, "__code__", None), "co_freevars", ())
    if loop.cell not in free:
        raise LookupError(f"is no wrapper around {loop.cell!r}")
    return Place(public.__closure__[free.index(loop.cell)], loop.cell)


class Patches:
    """Context manager that keeps loops patched while at least one thread is inside it.

    Any number of threads may enter it at the same time.

    Parameters
    ----------
    loops : iterable of Loop
        Loops to patch.
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
        # The finder patches imports that begin from now on; patch the earlier ones here.
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
                    if place.get() is replacement:  # else other code has replaced it since
                        place.set(original)
            self._installed.clear()

    def states(self) -> dict[str, str]:
        """Return the state of each loop, by its full name.

        Returns
        -------
        dict of str to str
            ``active``, ``ready for a block``, ``library not imported``, or ``cannot be observed``
            with the reason.
        """
        return {str(loop): _state(loop) for loops in self._loops.values() for loop in loops}

    def _imported(self, name: str, module: ModuleType) -> None:
        """Patch an imported module, unless it is patched already or no block is open."""
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
    """Yield the name and the module of each imported module among `names`.

    Waits for imports that are under way in other threads.
    """
    for name in names:
        module = sys.modules.get(name)
        if module is not None and _initializing(module):
            module = _when_imported(name)
        if module is not None:
            yield name, module


def _initializing(module: ModuleType) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


def _when_imported(name: str) -> ModuleType | None:
    """Wait for an import under way in another thread.

    Returns None if the import fails, or if this thread itself is importing the module.
    """
    try:
        module = importlib.import_module(name)
    except Exception:
        return None
    return None if _initializing(module) else module


class AfterImport(MetaPathFinder):
    """Finder that calls a function at the end of the import of certain modules.

    Parameters
    ----------
    names : iterable of str
        Full names of the modules.
    done : callable
        Called as ``done(name, module)`` once the module has been executed.
    """

    def __init__(self, names: Iterable[str], done: Callable[[str, ModuleType], None]) -> None:
        self._names = frozenset(names)
        self._done = done

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find one of the modules with the other finders, and wrap its loader."""
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
        """Return the finders after this one, possibly including others of this class."""
        finders = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else []


class ThenDone(Loader):
    """Loader that wraps another one for one import and leaves no trace on the module.

    Parameters
    ----------
    loader : importlib.abc.Loader
        The module's own loader.
    done : callable
        See `AfterImport`.
    """

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
