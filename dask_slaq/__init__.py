"""Quality-driven scheduling for machine learning on Dask.

Worker threads go to the training jobs whose loss is predicted to fall most. ``SlaqPlugin`` runs on
the scheduler. Training programs use ``search``, ``job`` and ``report``. ``simulate`` compares
policies on a simulated cluster.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_slaq.adapters import instrument as instrument
    from dask_slaq.client import alerts as alerts
    from dask_slaq.client import ended as ended
    from dask_slaq.client import explain as explain
    from dask_slaq.client import history as history
    from dask_slaq.client import job as job
    from dask_slaq.client import pause as pause
    from dask_slaq.client import progress as progress
    from dask_slaq.client import report as report
    from dask_slaq.client import resume as resume
    from dask_slaq.client import search as search
    from dask_slaq.client import set_job as set
    from dask_slaq.client import set_limit as set_limit
    from dask_slaq.client import set_owner as set_owner
    from dask_slaq.client import set_policy as set_policy
    from dask_slaq.client import status as status
    from dask_slaq.client import stop as stop
    from dask_slaq.client import submit as submit
    from dask_slaq.client import usage as usage
    from dask_slaq.core.errors import StopTraining as StopTraining
    from dask_slaq.core.errors import TrialPruned as TrialPruned
    from dask_slaq.scheduler.plugin import SlaqPlugin as SlaqPlugin
    from dask_slaq.simulation import simulate as simulate
    from dask_slaq.versions import show_versions as show_versions

# Module of each public name. Imported on first use, so that a scheduler starts fast.
_PUBLIC = {
    "SlaqPlugin": "dask_slaq.scheduler.plugin",
    "StopTraining": "dask_slaq.core.errors",
    "TrialPruned": "dask_slaq.core.errors",
    "alerts": "dask_slaq.client",
    "explain": "dask_slaq.client",
    "ended": "dask_slaq.client",
    "history": "dask_slaq.client",
    "instrument": "dask_slaq.adapters",
    "job": "dask_slaq.client",
    "pause": "dask_slaq.client",
    "progress": "dask_slaq.client",
    "report": "dask_slaq.client",
    "resume": "dask_slaq.client",
    "search": "dask_slaq.client",
    "set_limit": "dask_slaq.client",
    "set_owner": "dask_slaq.client",
    "set_policy": "dask_slaq.client",
    "show_versions": "dask_slaq.versions",
    "simulate": "dask_slaq.simulation",
    "status": "dask_slaq.client",
    "stop": "dask_slaq.client",
    "submit": "dask_slaq.client",
    "usage": "dask_slaq.client",
}

__all__ = [
    "SlaqPlugin",
    "StopTraining",
    "TrialPruned",
    "alerts",
    "ended",
    "explain",
    "history",
    "instrument",
    "job",
    "pause",
    "progress",
    "report",
    "resume",
    "search",
    "set",
    "set_limit",
    "set_owner",
    "set_policy",
    "show_versions",
    "simulate",
    "status",
    "stop",
    "submit",
    "usage",
]


def __getattr__(name: str) -> Any:
    if name == "dask_setup":  # looked up by ``--preload dask_slaq``
        return import_module("dask_slaq.scheduler.preload").dask_setup
    if name == "__version__":
        return import_module("importlib.metadata").version("dask-slaq")
    if name in ("optuna", "xgboost"):  # what programs call that use these libraries
        return import_module(f"dask_slaq.adapters.{name}")
    if name == "set":  # an alias, as the module that defines it needs the builtin
        return import_module("dask_slaq.client").set_job
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC, "optuna", "set", "xgboost", "__version__"])
