"""What commands print, run in this process."""

import json
from typing import Any

from click.testing import CliRunner


def printed(command: Any, *arguments: str) -> str:
    """Return what a command writes to standard output; it must end well."""
    result = CliRunner().invoke(command, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def as_json(command: Any, *arguments: str) -> Any:
    """Return what a command writes with ``--json``."""
    return json.loads(printed(command, *arguments, "--json", "-"))
