"""Every example runs, and prints what it should."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from driving import PATIENCE

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(name: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_two_people_share_a_cluster():
    lines = run("two_people.py").splitlines()
    assert [line.split(":")[0] for line in lines] == ["own-loop", "unmodified"]
    assert [int(line.split()[-2]) for line in lines] == [15, 16]  # a fit reports its start too


def test_every_example_is_run():
    text = Path(__file__).read_text()
    assert all(f'run("{example.name}")' in text for example in EXAMPLES.glob("*.py"))
