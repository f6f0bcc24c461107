"""Each table of figures in README and docs says by which command and commit it was made."""

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks import readme
from dask_slaq.cli.main import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NUMBER = re.compile(r"[*~≤<>±]*\s*-?\d*\.?\d+\s*(%|s|x|MB|ms|us|µs|GB)?\**")
MEASURED = re.compile(r"<!-- measured: (?P<command>.+) @ (?P<commit>[0-9a-f]{7,40}) -->")
#: Cells with numbers from which on a table is one of figures.
FIGURES = 4


def tables(text: str) -> list[tuple[str, int]]:
    """What stands above each table of figures, and its line."""
    lines, found, i = text.splitlines(), [], 0
    while i < len(lines):
        begin = i
        while i < len(lines) and lines[i].startswith("|"):
            i += 1
        cells = [cell.strip() for row in lines[begin + 2 : i] for cell in row.strip("|").split("|")]
        if sum(NUMBER.fullmatch(cell) is not None for cell in cells) >= FIGURES:
            above = next((line for line in reversed(lines[:begin]) if line.strip()), "")
            found.append((above, begin + 1))
        i = max(i, begin + 1)
    return found


def test_figures_carry_their_command_and_commit():
    found = [(each, *table) for each in PAGES for table in tables(each.read_text())]
    for page, above, line in found:
        measured = MEASURED.fullmatch(above)
        assert measured, f"{page.name}:{line} needs <!-- measured: COMMAND @ COMMIT --> above it"
        words = measured["command"].split()
        if words[:2] == ["python", "-m"]:
            assert find_spec(words[2]) is not None, measured["command"]
        else:
            assert words[:2] == ["dask", "slaq"] and words[2] in COMMANDS, measured["command"]


def test_readme_has_every_figure_that_is_measured_anew():
    done = CliRunner().invoke(readme.main, ["--quick"])
    assert (done.exit_code, done.output) == (0, "")


@pytest.mark.parametrize(
    ("spec", "number"), [("1/@.*/a : .*/b", 1 / 3), ("max@.*/a", 8.0), ("%@two/b", 200.0)]
)
def test_figures_are_read_from_json(spec, number):
    found = {"one": {"a": 4, "b": 1}, "two": {"a": 4, "b": 2}, "three": {"a": None, "b": None}}
    assert readme.figure(found | {"one": {"a": 8, "b": 2}}, spec) == pytest.approx(number)


def test_a_table_without_is_refused():
    rows = "| a | b |\n|---|---|\n| 1.5 | 2 % |\n| .3 | **4 s** |\n"
    assert tables(f"text\n\n{rows}") == [("text", 3)]
    assert tables(rows.replace("2 %", "two")) == []
    assert not MEASURED.fullmatch("text")
    assert MEASURED.fullmatch("<!-- measured: python -m benchmarks.live @ 0123abc -->")
    assert sum(len(tables(page.read_text())) for page in PAGES) > 10
