"""Repairs of what newer releases of Dask, pandas and scikit-learn broke in dask-ml.

They are applied when the first block opens, and stay until the process ends or ``slaq.repairs``
disables them, because models fitted in a block are used after it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from dask_slaq.adapters.compat import dask_ml
from dask_slaq.adapters.observing import AfterImport, Replacements, warn_once
from dask_slaq.config import enabled_repairs


@dataclass(frozen=True)
class Repair:
    """Repair of one fault."""

    #: Name in ``slaq.repairs``.
    name: str
    #: Full name of the module to repair.
    module: str
    #: Returns whether the fault is present.
    needed: Callable[[ModuleType], bool]
    #: Returns (holder, attribute, new value) for each attribute to replace.
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
    """Registry of repairs, at most one per module, that keeps exactly the enabled ones applied.

    The state of a repair is ``active``, ``not needed``, ``off``, ``library not imported``, ``not
    before the first block``, or ``failed`` with the reason.
    """

    def __init__(self, repairs: Iterable[Repair]) -> None:
        self._repairs = {repair.module: repair for repair in repairs}
        self._lock = threading.RLock()
        self._enabled: frozenset[str] = frozenset()
        self._made: dict[str, Replacements] = {}
        self._finder = AfterImport(self._repairs, self._imported)
        self.states = {
            repair.name: "not before the first block" for repair in self._repairs.values()
        }

    def follow(self, enabled: frozenset[str]) -> None:
        """Apply the repairs named in `enabled` and undo the others; cheap if nothing changed."""
        with self._lock:
            if enabled == self._enabled and (not enabled or self._finder in sys.meta_path):
                return
            self._enabled = enabled
            if self._finder in sys.meta_path:
                sys.meta_path.remove(self._finder)
            if enabled:
                sys.meta_path.insert(0, self._finder)
            for repair in self._repairs.values():
                if repair.name not in enabled:
                    self._undo(repair)
                elif repair.module not in sys.modules:
                    self.states[repair.name] = "library not imported"
        self._finder.finish_earlier()

    def _imported(self, name: str, module: ModuleType) -> None:
        """Repair an imported module, unless that is already done or disabled."""
        repair = self._repairs[name]
        with self._lock:
            if repair.name in self._made or repair.name not in self._enabled:
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
        made = self._made[repair.name] = Replacements()
        for change in repair.changes(module):
            made.put(*change)
        return "active"

    def _undo(self, repair: Repair) -> None:
        if made := self._made.pop(repair.name, None):
            made.undo()
        self.states[repair.name] = "off"


_repairs = Repairs(REPAIRS)


def follow_settings() -> None:
    """Apply the repairs that ``slaq.repairs`` enables and undo the others.

    Raises `InvalidSetting` if the setting is invalid.
    """
    _repairs.follow(enabled_repairs())


def states() -> dict[str, str]:
    """Return the state of each repair in this process, by name. See `Repairs`.

    Raises `InvalidSetting` if ``slaq.repairs`` is invalid.
    """
    enabled = enabled_repairs()
    return {name: s if name in enabled else "off" for name, s in _repairs.states.items()}
