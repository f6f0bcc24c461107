"""What commands print, run in this process."""

import json
from typing import Any

from click.testing import CliRunner


def printed(command: Any, *arguments: Any, code: int = 0) -> str:
    """Return what a command writes to standard output, or with other codes of its end, to both."""
    result = CliRunner().invoke(command, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def as_json(command: Any, *arguments: str) -> Any:
    """Return what a command writes with ``--json``."""
    return json.loads(printed(command, *arguments, "--json", "-"))
