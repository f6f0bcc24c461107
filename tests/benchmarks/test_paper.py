"""A tiny run writes figures of the paper with labels and units, and a matching table."""

import json

import numpy as np
import pytest
import xarray as xr
from click.testing import CliRunner

pytest.importorskip("matplotlib")
pytest.importorskip("sklearn")

from benchmarks.paper import __main__ as command
from benchmarks.paper import quality
from benchmarks.paper.datasets import label
from benchmarks.paper.figures import FIGURES
from benchmarks.paper.study import OURS, Scale, Study
from dask_slaq.lab.simulation import Settings
from dask_slaq.lab.simulation.workload.curves import LossCurve

TINY = Scale(
    origins=3, jobs=6, seeds=1, interarrival=3.0, interarrivals=(10.0, 4.0), one_job=4,
    ladder_jobs=4,
    workers=(1, 2), model_bytes=(10_000,), iterations=1, decision_jobs=(12, 20),
    decision_cores=(64,),
)  # fmt: skip
#: What the paper numbers and shows, but for its diagrams.
PAPER = ["1", "3", "5", "6a", "6b", "7a", "7b", "8", "9", "10a", "10b", "10c"]
DRAWN = [figure for figure in FIGURES if figure.draw is not None]


def some_curves():
    """Falling losses of three algorithms, one of them noisy, so that none need be trained."""
    rng, k = np.random.default_rng(0), np.arange(60)
    return [
        LossCurve(f"{name}-{n}", name, 0.2 + (1 + k / (2 + 4 * n)) ** -1.5 + noise, name == "SGD")
        for name in ("MLP classifier", "SVM", "SGD")
        for n in range(3)
        for noise in [0.01 * rng.standard_normal(60) * (name == "SGD")]
    ]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Folder and result of one run."""
    out = tmp_path_factory.mktemp("figures")
    said = []
    study = Study(TINY, given=some_curves(), processes=1)
    return out, command.write(out, study, said.append), said


def opened(out, figure):
    with xr.open_dataset(out / f"figure-{figure.number}.nc", engine="scipy") as data:
        return data.load()


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.number)
def test_every_figure_is_there_and_says_what_it_is(run, figure):
    data = opened(run[0], figure)
    assert (run[0] / f"figure-{figure.number}.png").is_file() == (figure.draw is not None)
    assert {"figure", "title", "setting"} <= data.attrs.keys()
    for variable in data.variables.values():
        assert variable.attrs["long_name"] and "units" in variable.attrs
    assert any(np.isfinite(values).any() for values in data.data_vars.values())


@pytest.mark.parametrize("figure", DRAWN, ids=lambda figure: figure.number)
def test_a_picture_of_what_the_file_holds_has_labels_units_and_a_legend(run, figure):
    data = opened(run[0], figure)
    drawn = figure.draw(data)
    assert data.attrs["title"] in drawn.get_suptitle()
    known = {label(data[name]) for name in data.variables}
    for axes in drawn.axes:
        assert {axes.get_xlabel(), axes.get_ylabel()} <= known
        assert axes.get_legend() is not None
        assert axes.has_data()


def test_the_table_says_what_the_files_say(run):
    out, result, said = run
    again = [row for figure in FIGURES for row in figure.rows(opened(out, figure))]
    numbers = list(dict.fromkeys(row.figure for row in again))
    assert numbers == [*PAPER, "changes"]
    assert [line.split()[0] for line in said[1:]] == numbers
    lines = (out / "table.md").read_text().splitlines()
    assert len([line for line in lines if line.startswith("| ")]) == len(again) + 1
    for row, told in zip(again, result["rows"], strict=True):
        assert told["measured"] == row.measured and told["paper"] == row.paper
        assert told["setting"] == row.setting and row.values
        for name, value in row.values.items():
            expected = np.nan if told["values"][name] is None else told["values"][name]
            assert value == pytest.approx(expected, nan_ok=True)
    json.dumps(result, allow_nan=False)


def test_a_missing_matplotlib_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(command, "find_spec", lambda name: None)
    result = CliRunner().invoke(command.main, ["--out", str(tmp_path)])
    assert result.exit_code == 1
    assert result.output == "Error: figures need matplotlib: pip install 'dask-slaq[benchmarks]'\n"


def test_bad_curves_are_told_before_anything_is_run(tmp_path):
    path = tmp_path / "curves.jsonl"
    path.write_text('{"id": "a", "loss": [1.0, NaN]}')
    arguments = ["--out", str(tmp_path / "out"), "--curves", str(path), "--quick"]
    result = CliRunner().invoke(command.main, arguments)
    assert result.exit_code == 1 and "curves.jsonl, line 1: loss[1] is nan" in result.output
    assert not (tmp_path / "out").exists()


def test_slaq2017_stands_beside_ours_wherever_policies_are_compared(run):
    for row in run[1]["rows"]:
        if row["figure"] in ("3", "7a", "7b", "8", "9", "10c"):
            assert {"slaq2017", OURS} <= row["values"].keys()


def test_cores_are_counted_by_rank_of_normalized_loss():
    flat = LossCurve("flat", "flat", 1.0 - 0.01 * np.arange(50), False)
    watched = quality.watch("fair", Settings(jobs=4, cores=8, interarrival=0, seeds=1), [flat])
    part = watched.by_group.sum(axis=1) / watched.by_group.sum()
    assert part == pytest.approx([0.25, 0.25, 0.5], abs=0.02)
