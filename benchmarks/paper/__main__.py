"""``python -m benchmarks.paper``: the figures of the SLAQ paper as PNG, NetCDF and one table."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from benchmarks.common.results import give, json_option
from benchmarks.paper.datasets import Row
from benchmarks.paper.figures import FIGURES
from benchmarks.paper.study import FULL, QUICK, Study
from benchmarks.prediction import ManyFiles, curves_option
from dask_slaq.core.errors import SlaqError
from dask_slaq.simulation.workload import curves as curve_files

__all__ = ["main", "markdown", "write"]

_HEAD = """# The paper's figures, and ours

`not stated`: no number of the paper is known here for certain. What a figure of the paper shows is
told in `paper_figure` of its NetCDF file, as it is taken to be. The paper ran Spark on 640
cores; ours are simulations with the scheduler's own engine, and measurements on this machine.

"""
_NOTE = """
The mean normalized loss of the active jobs, the paper's measure, is flattered by jobs that have
nearly converged and stay active: the part of the jobs' time with at most 5 % left to fall tells how
much, and the integral of the normalized loss of each job is free of it.
"""


@click.command(cls=ManyFiles)
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False),
    help="Output folder; created if needed.",
)
@curves_option
@click.option(
    "--seed", default=0, show_default=True, help="Seed of trained curves and of lists of jobs."
)
@click.option("--quick", is_flag=True, help="Smaller studies; takes under a minute.")
@json_option
def main(out: str, files: tuple[str, ...], seed: int, quick: bool, output: str | None) -> None:
    """Reproduce figures of the paper as PNG and NetCDF, and write table.md."""
    if find_spec("matplotlib") is None:
        raise click.ClickException("figures need matplotlib: pip install 'dask-slaq[benchmarks]'")
    try:
        given = curve_files.read_curves(files) if files else None
        study = Study(QUICK if quick else FULL, seed, given)
        result = write(Path(out), study)
    except (curve_files.CurveError, SlaqError) as error:
        raise click.ClickException(str(error)) from error
    result["settings"] |= {"files": list(files), "quick": quick}
    give(result, output, f"{len(result['rows'])} rows in {Path(out) / 'table.md'}")


def write(out: Path, study: Study) -> dict[str, Any]:
    """Write all files into the folder `out`, and print the progress on standard error.

    Returns ``rows`` of the table, ``seconds`` of each figure, and ``settings``.
    """
    import matplotlib

    matplotlib.use("Agg")
    _say(f"curves: {study.source}, {len(study.job_curves)} of them fit for jobs")
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    seconds = {}
    for number, figure in enumerate(FIGURES, start=1):
        start = time.perf_counter()
        data = figure.data(study)
        data.to_netcdf(out / f"{figure.name}.nc", engine="scipy")
        if figure.draw is not None:
            figure.draw(data).savefig(out / f"{figure.name}.png")
        rows += figure.rows(data)
        seconds[figure.name] = time.perf_counter() - start
        _say(f"{number} of {len(FIGURES)}: {figure.name}, {seconds[figure.name]:.1f} s")
    (out / "table.md").write_text(markdown(rows), encoding="utf-8")
    return {
        "rows": [_record(row) for row in rows],
        "seconds": seconds,
        "settings": {"seed": study.seed, "curves": len(study.curves), **asdict(study.scale)},
    }


def markdown(rows: Sequence[Row]) -> str:
    """Format the table in Markdown, with the settings as numbered notes below it."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    lines = ["| figure | measured | the paper | ours | setting |", "|---|---|---|---|---|"]
    lines += [
        f"| {row.figure} | {row.measured} | {row.paper} | {_ours(row)} | "
        f"[{settings.index(row.setting) + 1}] |"
        for row in rows
    ]
    notes = [f"{number}. {setting}" for number, setting in enumerate(settings, start=1)]
    return _HEAD + "\n".join(lines) + "\n" + _NOTE + "\nSettings:\n\n" + "\n".join(notes) + "\n"


def _ours(row: Row) -> str:
    unit = f" {row.unit}" if row.unit else ""
    return "; ".join(f"{name} {_short(value)}{unit}" for name, value in row.ours.items())


def _short(value: float) -> str:
    """Format a number with three digits, and nan as a dash."""
    return "-" if math.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def _record(row: Row) -> dict[str, Any]:
    """Convert a row for JSON, which has no nan."""
    ours = {name: None if math.isnan(value) else value for name, value in row.ours.items()}
    return {**asdict(row), "ours": ours}


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
