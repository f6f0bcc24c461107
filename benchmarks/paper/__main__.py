"""``python -m benchmarks.paper``: the figures of the SLAQ paper as PNG, NetCDF and one table."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from benchmarks.common.results import give, json_option
from benchmarks.paper.datasets import Row, short
from benchmarks.paper.figures import FIGURES
from benchmarks.paper.study import FULL, QUICK, Study
from benchmarks.prediction import ManyFiles, curves_option
from dask_slaq.core.errors import SlaqError
from dask_slaq.lab.simulation.workload import curves as curve_files

_HEAD = """# The paper's figures, and ours

The paper ran Spark on 640 cores; ours are simulations with the scheduler's own engine, and
measurements on one machine. `slaq2017` is the paper's scheduler, `ours` or `first-to-target` the
default.

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
        # JSON on standard output stays alone there.
        result = write(Path(out), study, partial(click.echo, err=output == "-"))
    except (curve_files.CurveError, SlaqError) as error:
        raise click.ClickException(str(error)) from error
    result["settings"] |= {"files": list(files), "quick": quick}
    give(result, output, f"{len(result['rows'])} rows in {Path(out) / 'table.md'}")


def write(out: Path, study: Study, say: Callable[[str], object] = click.echo) -> dict[str, Any]:
    """Write all files into the folder `out`, and `say` a line per figure.

    Returns ``rows`` of the table, ``seconds`` of each figure, and ``settings``.
    """
    import matplotlib

    matplotlib.use("Agg")
    say(f"curves: {study.source}, {len(study.job_curves)} of them for jobs")
    out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    seconds = {}
    for figure in FIGURES:
        start = time.perf_counter()
        data = figure.data(study)
        data.to_netcdf(out / f"figure-{figure.number}.nc", engine="scipy")
        if figure.draw is not None:
            figure.draw(data).savefig(out / f"figure-{figure.number}.png")
        new = figure.rows(data)
        rows += new
        seconds[figure.number] = time.perf_counter() - start
        say(f"{figure.number}  " + " | ".join(row.line for row in new))
    (out / "table.md").write_text(markdown(rows), encoding="utf-8")
    return {
        "rows": [_record(row) for row in rows],
        "seconds": seconds,
        "settings": {"seed": study.seed, "curves": len(study.curves), **asdict(study.scale)},
    }


def markdown(rows: Sequence[Row]) -> str:
    """Format the table in Markdown, with the settings as numbered notes below it."""
    settings = list(dict.fromkeys(row.setting for row in rows))
    lines = ["| figure | measured | the paper | here | differs | setting |", "|" + "---|" * 6]
    lines += [
        f"| {row.figure} | {row.measured} | {row.paper} | {_here(row)} | {row.differs} | "
        f"[{settings.index(row.setting) + 1}] |"
        for row in rows
    ]
    notes = [f"{number}. {setting}" for number, setting in enumerate(settings, start=1)]
    return _HEAD + "\n".join(lines) + "\n\nSettings:\n\n" + "\n".join(notes) + "\n"


def _here(row: Row) -> str:
    unit = f" {row.unit}" if row.unit else ""
    return "; ".join(f"{name} {short(value)}{unit}" for name, value in row.values.items())


def _record(row: Row) -> dict[str, Any]:
    """Convert a row for JSON, which has no nan."""
    values = {name: None if math.isnan(value) else value for name, value in row.values.items()}
    return {**asdict(row), "values": values}


if __name__ == "__main__":
    main()
