"""The command line: what it offers, and what it says to mistakes."""

from importlib.metadata import entry_points

import pytest
from click.testing import CliRunner
from commands import python

from dask_slaq.cli.main import slaq


@pytest.fixture
def run():
    """Run ``dask slaq`` with these arguments in this process."""
    return lambda *args: CliRunner().invoke(slaq, args)


def test_dask_finds_the_command():
    if "slaq" not in {point.name for point in entry_points(group="dask_cli")}:
        pytest.skip("dask_slaq is on the path, but not installed")
    assert entry_points(group="dask_cli")["slaq"].load() is slaq


HELP = """
import contextlib, runpy, sys
for command in ([], ["demo"], ["top"]):
    sys.argv[1:] = [*command, "--help"]
    with contextlib.suppress(SystemExit):
        runpy.run_module("dask_slaq", run_name="__main__")
heavy = {"distributed", "dask_ml", "scipy", "xarray", "rich"}
assert heavy.isdisjoint(sys.modules), heavy & sys.modules.keys()
"""


def test_module_runs_as_a_program_whose_help_imports_nothing_heavy():
    shown = python(HELP).stdout
    assert "demo" in shown and "--seconds" in shown


@pytest.mark.parametrize("option", ["--json", "--html"])
@pytest.mark.parametrize(
    ("file", "why"), [("nowhere/file", "there is no directory"), ("", "is a directory")]
)
def test_a_file_that_cannot_be_written_is_refused_before_anything_starts(
    run, tmp_path, option, file, why
):
    result = run("demo", option, str(tmp_path / file))
    assert result.exit_code == 2
    assert why in result.output
    assert "Starting" not in result.output


def test_unknown_policy_is_named_with_the_known_ones(run):
    result = run("demo", "--policy", "fairest")
    assert result.exit_code == 2
    assert "fairest" in result.output
    assert "max-total" in result.output
    assert "Traceback" not in result.output
