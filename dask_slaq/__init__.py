"""Quality-driven scheduling for machine learning on Dask.

Worker threads go to the training jobs whose loss is predicted to fall most. ``SlaqPlugin`` runs on
the scheduler. Training programs use ``search``, ``job`` and ``report``. ``simulate`` compares
policies on a simulated cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

# ruff: noqa: F403
if TYPE_CHECKING:  # for editors and type checkers
    from dask_slaq import adapters as adapters
    from dask_slaq.adapters import instrument as instrument
    from dask_slaq.adapters import optuna as optuna
    from dask_slaq.adapters import xgboost as xgboost
    from dask_slaq.client import *
    from dask_slaq.core.errors import StopTraining as StopTraining
    from dask_slaq.core.errors import TrialPruned as TrialPruned
    from dask_slaq.lab.simulation import simulate as simulate
    from dask_slaq.scheduler.plugin import SlaqPlugin as SlaqPlugin
    from dask_slaq.worker import resume as resume
    from dask_slaq.worker import steps as steps
    from dask_slaq.worker import waited as waited

    __version__: str

#: Names by the module that they are imported from on first use, so that a scheduler starts fast.
_NAMES = {
    "client": (
        *("Pruned", "alerts", "change", "ended", "explain", "history", "job", "pause", "progress"),
        *("report", "reservations", "reserve", "search", "set_limit", "set_owner", "set_policy"),
        *("status", "stop", "submit", "trial", "unpause", "unreserve", "usage", "whatif"),
    ),
    "core.errors": ("StopTraining", "TrialPruned"),
    "scheduler.plugin": ("SlaqPlugin",),
    "adapters": ("instrument",),
    "lab.simulation": ("simulate",),
    "worker": ("resume", "steps", "waited"),
}
_MODULES = {name: f"dask_slaq.{module}" for module, names in _NAMES.items() for name in names}
__all__ = sorted(_MODULES)


if not TYPE_CHECKING:  # checkers would take any name for one of this module

    def __getattr__(name: str) -> Any:
        if name == "dask_setup":  # looked up by ``--preload dask_slaq``
            return import_module("dask_slaq.scheduler.preload").dask_setup
        if name == "__version__":
            return import_module("importlib.metadata").version("dask-slaq")
        if name == "adapters":
            return import_module("dask_slaq.adapters")
        if name in ("optuna", "xgboost"):  # what programs call that use these libraries
            return import_module(f"dask_slaq.adapters.{name}")
        if name in _MODULES:
            return getattr(import_module(_MODULES[name]), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "adapters", "optuna", "xgboost", "__version__"])
