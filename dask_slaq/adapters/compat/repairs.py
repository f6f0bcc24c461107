"""Mends what newer releases of Dask, pandas and scikit-learn broke in dask-ml.

From the first block on, and until the process ends or the setting ``slaq.repairs`` says otherwise:
models fitted in a block are used after it. Each repair looks first whether it is needed; what it
puts into the library is undone exactly. Modules that are imported later are mended then.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dask_slaq.adapters.compat import dask_ml
from dask_slaq.adapters.observing import AfterImport, imported, warn_once
from dask_slaq.config import enabled_repairs

_MISSING = object()


@dataclass(frozen=True)
class Repair:
    """One thing to mend.

    Attributes
    ----------
    name : str
        As in ``slaq.repairs``.
    module : str
        The module in which it is mended.
    needed : callable
        Takes the module; whether the fault is there.
    changes : callable
        Takes the module; gives (holder, attribute, new value) for each thing to replace.
    """

    name: str
    module: str
    needed: Callable[[ModuleType], bool]
    changes: Callable[[ModuleType], list[tuple[Any, str, Any]]]


REPAIRS = (
    Repair(
        "incremental-search",
        "dask_ml.model_selection._incremental",
        dask_ml.search_is_refused,
        dask_ml.persist_by_client,
    ),
    Repair(
        "k-means++",
        "dask_ml.cluster.k_means",
        dask_ml.start_lacks_weights,
        dask_ml.start_with_equal_weights,
    ),
    Repair("r2-score", "dask_ml.metrics.regression", dask_ml.score_fails, dask_ml.score_by_where),
    Repair("pca", "dask_ml.decomposition.pca", dask_ml.normalizer_is_missing, dask_ml.normalizer),
    Repair(
        "text-hashing",
        "dask_ml.feature_extraction.text",
        dask_ml.hashing_fails,
        dask_ml.hash_without_inference,
    ),
)


class Repairs:
    """Keeps the enabled repairs, and no others, in place.

    Parameters
    ----------
    repairs : iterable of Repair

    Attributes
    ----------
    states : dict of str to str
        By name of the repair: ``active``, ``not needed``, ``off``, ``library not imported``,
        ``not before the first block``, or ``failed`` and why.
    """

    def __init__(self, repairs: Iterable[Repair]) -> None:
        self._repairs = {repair.module: repair for repair in repairs}
        self._lock = threading.RLock()
        self._enabled: frozenset[str] = frozenset()
        self._before: dict[str, list[tuple[Any, str, Any, Any]]] = {}
        self._finder = AfterImport(self._repairs, self._imported)
        self.states = {
            repair.name: "not before the first block" for repair in self._repairs.values()
        }

    def follow(self, enabled: frozenset[str]) -> None:
        """Mend what is `enabled` and undo the rest. Costs next to nothing if nothing changed."""
        with self._lock:
            if enabled == self._enabled and (not enabled or self._finder in sys.meta_path):
                return
            self._enabled = enabled
            self._watch_imports(bool(enabled))
            for repair in self._repairs.values():
                if repair.name not in enabled:
                    self._undo(repair)
                elif repair.module not in sys.modules:
                    self.states[repair.name] = "library not imported"
        for name, module in imported(self._repairs):
            self._imported(name, module)

    def _watch_imports(self, wanted: bool) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        if wanted:
            sys.meta_path.insert(0, self._finder)

    def _imported(self, name: str, module: ModuleType) -> None:
        """Mend a module that is there, unless that is done or not wanted."""
        repair = self._repairs[name]
        with self._lock:
            if repair.name in self._before or repair.name not in self._enabled:
                return
            try:
                self.states[repair.name] = self._mend(repair, module)
            except Exception as error:
                self._undo(repair)
                self.states[repair.name] = f"failed: {type(error).__name__}: {error}"
                warn_once(repair.name, f"{name} was not repaired ({repair.name}): {error!r}")

    def _mend(self, repair: Repair, module: ModuleType) -> str:
        if not repair.needed(module):
            return "not needed"
        before = self._before[repair.name] = []
        for holder, attribute, value in repair.changes(module):
            before.append((holder, attribute, _own(holder, attribute), value))
            setattr(holder, attribute, value)
        return "active"

    def _undo(self, repair: Repair) -> None:
        for holder, attribute, before, value in reversed(self._before.pop(repair.name, [])):
            if _own(holder, attribute) is not value:  # somebody else's by now
                continue
            if before is _MISSING:
                delattr(holder, attribute)
            else:
                setattr(holder, attribute, before)
        self.states[repair.name] = "off"


def _own(holder: Any, attribute: str) -> Any:
    """An attribute of an object, for a class not one that it inherits."""
    if isinstance(holder, type):
        return vars(holder).get(attribute, _MISSING)
    return getattr(holder, attribute)


_repairs = Repairs(REPAIRS)


def follow_settings() -> None:
    """Have in place the repairs that ``slaq.repairs`` allows.

    Raises
    ------
    InvalidSetting
    """
    _repairs.follow(enabled_repairs())


def states() -> dict[str, str]:
    """Whether each repair is active in this process, or why not.

    Raises
    ------
    InvalidSetting
    """
    enabled = enabled_repairs()
    return {name: s if name in enabled else "off" for name, s in _repairs.states.items()}
