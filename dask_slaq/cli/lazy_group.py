"""Group of commands that are imported when they are used: every ``dask`` command loads ours."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


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
        if name not in self._members:
            return None
        module, _, attribute = self._members[name].partition(":")
        found: click.Command = getattr(import_module(f"dask_slaq.cli.{module}"), attribute)
        return found
