"""What commands print, run in this process, and programs in one of their own."""

import json
import os
import subprocess
import sys
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


def python(program: str, *, ends: int | None = 0, **environment: str) -> Any:
    """Run a program in an interpreter of its own, with texts of what it writes."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True, text=True, timeout=300, env={**os.environ, **environment},
    )  # fmt: skip
    assert ends is None or done.returncode == ends, done.stderr
    return done
