"""Command line ``dask slaq``, also available as ``python -m dask_slaq``."""

from __future__ import annotations

import click

from dask_slaq.cli.lazy_group import LazyGroup

_MODULES = {
    "advise": ("advise",),
    "change_commands": ("pause", "policy", "resume", "stop"),
    "demo": ("demo",),
    "look_commands": ("audit", "explain", "jobs", "limits", "owners", "workers"),
    "memory": ("memory",),
    "replay": ("replay",),
    "reserve": ("reserve",),
    "simulate": ("simulate",),
    "top": ("top",),
    "usage": ("usage",),
}
#: Where each command is defined: ``module:name``.
COMMANDS = {name: f"{module}:{name}" for module, names in _MODULES.items() for name in names}
COMMANDS["set"] = "change_commands:set_job"


@click.group(
    cls=LazyGroup, members=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
def slaq() -> None:
    """Quality-driven scheduling of machine learning jobs."""
