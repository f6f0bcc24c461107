"""Command line ``dask slaq``, also available as ``python -m dask_slaq``."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from dask_slaq.core.errors import SlaqError

_MODULES = {
    "change_commands": ("change", "pause", "policy", "reserve", "stop", "unpause"),
    "demo": ("demo",),
    "look_commands": ("advise", "audit", "explain", "jobs", "limits", "owners", "workers"),
    "runs": ("runs", "usage"),
    "simulate": ("replay", "simulate"),
}
#: Where each command is defined: ``module:name``.
COMMANDS = {name: f"{module}:{name}" for module, names in _MODULES.items() for name in names}
#: Commands by their other names.
ALIASES = {"status": "jobs"}


class LazyGroup(click.Group):
    """Group whose commands are ``module:name`` by their names, in modules of this package."""

    def __init__(self, *args: Any, members: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._members = members

    def list_commands(self, context: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self._members)

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        """Return a command by its name."""
        name = ALIASES.get(name, name)
        if name not in self._members:
            near = get_close_matches(name, (*self._members, *ALIASES), 1)
            if near and not context.resilient_parsing:
                context.fail(f"No such command {name!r}. Did you mean {near[0]!r}?")
            return None
        module, _, attribute = self._members[name].partition(":")
        return getattr(import_module(f"dask_slaq.cli.{module}"), attribute)

    def invoke(self, context: click.Context) -> Any:
        """Run a command; what is wrong is one line."""
        try:
            return super().invoke(context)
        except SlaqError as error:
            raise click.ClickException(str(error)) from None


@click.group(
    cls=LazyGroup, members=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
def slaq() -> None:
    """Quality-driven scheduling of machine learning jobs.

    \b
    Example:
        dask slaq jobs --scheduler tcp://10.0.0.1:8786

    Without --scheduler, the environment variable DASK_SCHEDULER_ADDRESS says where it is.
    """
