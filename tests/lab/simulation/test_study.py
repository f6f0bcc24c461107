"""Studies from `dask_slaq.simulate` and the command line are reproducible, and errors are named."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

import dask_slaq
from dask_slaq.cli.main import slaq
from dask_slaq.core.errors import InvalidSetting, UnknownPolicy
from dask_slaq.lab.simulation import CurveError, Settings
from dask_slaq.lab.simulation.workload.curves import LossCurve

#: Keys that others read.
KEYS = {
    "t90_mean_s", "t95_mean_s", "completion_mean_s", "mean_normalized_loss", "area", "rho_max",
    "decision_seconds",
}  # fmt: skip
SMALL = {"jobs": 4, "cores": 32, "seeds": 2, "load": 0.9, "interarrival": 5.0}
ARGUMENTS = [f"--{key}={value}" for key, value in SMALL.items()]


def invoke(*arguments):
    return CliRunner().invoke(slaq, ["simulate", *arguments])


@pytest.fixture
def curve_file(tmp_path):
    path = tmp_path / "curves.jsonl"
    lines = [
        json.dumps({"id": f"c{i}", "loss": np.geomspace(10, 1 + i, 30).tolist()}) for i in range(4)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def without_clock(found):
    for figures in found["policies"].values():
        del figures["decision_seconds"]
    return found


def test_the_public_function_compares_policies():
    found = dask_slaq.simulate(["max-total", "oracle"], **SMALL)
    assert list(found["policies"]) == ["max-total", "oracle"]
    assert found["settings"]["jobs"] == 4 and found["settings"]["offered_load"] > 0.5
    for figures in found["policies"].values():
        assert set(figures) >= KEYS
        assert figures["t90_mean_s"] <= figures["t95_mean_s"] <= figures["completion_mean_s"]
        assert 0 < figures["utilization"] <= 1


def test_a_study_is_a_function_of_its_seed():
    one, same, other = (
        without_clock(dask_slaq.simulate(["max-total"], seed=seed, noise=0.02, **SMALL))
        for seed in (1, 1, 9)
    )
    assert one == same
    assert one["policies"] != other["policies"]


def test_curves_may_be_given_as_such():
    curves = [LossCurve(str(i), "x", np.geomspace(10 + i, 1, 25), False) for i in range(3)]
    found = dask_slaq.simulate(["fair"], curves, **SMALL)
    assert found["settings"]["curves"] == 3


def test_settings_can_be_kept_and_varied():
    base = Settings(**SMALL)
    found = dask_slaq.simulate(["fair"], settings=base, seeds=1, max_cores=2.0)
    assert found["settings"]["max_cores"] == 2.0 and found["settings"]["seeds"] == 1


def test_several_processes_find_the_same():
    one, two = (
        without_clock(dask_slaq.simulate(["max-total"], processes=n, **{**SMALL, "seeds": 1}))
        for n in (1, 2)
    )
    assert one == two


def test_json_goes_to_standard_output(curve_file):
    result = invoke(
        "--curves", str(curve_file), "--policies", "fair,max-total,oracle",
        *ARGUMENTS, "--noise", "0.01", "--scaling", "sublinear", "--move-pause", "1",
        "--max-cores", "16", "--json", "-",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert list(found["policies"]) == ["fair", "max-total", "oracle"]
    assert all(set(figures) >= KEYS for figures in found["policies"].values())
    assert found["policies"]["fair"]["rho_max"] == 1.0


def test_a_table_otherwise_and_json_to_a_file(curve_file, tmp_path):
    output = tmp_path / "found.json"
    arguments = ("--curves", str(curve_file), "--policies", "fair", *ARGUMENTS)
    result = invoke(*arguments, "--scaling", "waves", "--json", str(output))
    assert result.exit_code == 0, result.output
    assert "waves scaling" in result.output and "t90/s" in result.output
    assert "fair" in json.loads(output.read_text())["policies"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "b", "loss": [2, NaN]}', "line 5: loss[1] is nan; it must be finite"),
        ('{"id": "b", "loss": [2, 1e300]}', "line 5: loss[1] is 1e+300; it must be from -1e+200"),
        ('{"id": "b", "loss": ' + "[" * 9000, "line 5: not JSON: maximum recursion depth"),
        ('{"id": "b", "loss": [2, 1\f]}', "line 5: not JSON"),
        ('{"id": "b", "loss": [2, 1_0]}', "line 5: not JSON"),
        ('{"id": "b", "loss": [2, "1"]}', "line 5: loss[1] is '1'"),
        ('{"id": "b", "loss": [1]}', "line 5: 'loss' has 1 values"),
        ('{"id": "b"}', "line 5: 'loss' must be a list, and is missing"),
        ('{"loss": [2, 1]}', "line 5: 'id' must be a str, not None"),
        ("[1, 2]", "line 5: a curve is an object"),
        ("{", "line 5: not JSON: Expecting property name enclosed in double quotes at column 2"),
    ],
)
def test_a_bad_curve_is_named_with_file_and_line(curve_file, line, says):
    curve_file.write_text(curve_file.read_text() + line + "\n")
    result = invoke("--curves", str(curve_file), *ARGUMENTS)
    assert result.exit_code == 1
    assert f"{curve_file}, {says}" in result.output


def test_files_without_a_useful_curve(tmp_path):
    path = tmp_path / "flat.jsonl"
    path.write_text(json.dumps({"id": "flat", "loss": [1.0] * 40}) + "\n")
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    for file, says in (
        (path, "no curve is fit"),
        (empty, f"{empty}: no curve in this file"),
        (tmp_path / "missing", "cannot be read"),
    ):
        result = invoke("--curves", str(file), *ARGUMENTS)
        assert result.exit_code == 1 and says in result.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--policies", "fairest"], "'fairest'; choose from none, fair"),
        (["--policies", "oracle:fairest"], "'oracle:fairest'; choose from"),
        (["--policies", ","], "at least one name"),
        (["--scaling", "cubic"], "cubic"),
        (["--jobs", "0"], "--jobs"),
        (["--noise", "-1"], "--noise"),
        (["--json", "nowhere/file"], "there is no directory"),
    ],
)
def test_wrong_arguments_are_named(arguments, says):
    result = invoke(*arguments)
    assert result.exit_code != 0 and says in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"scaling": "cubic"}, "scaling must be one of"),
        ({"jobs": 0}, "jobs must be from 1 to 1e\\+07, not 0"),
        ({"noise": float("nan")}, "noise must be from 0 to 1e\\+06, not nan"),
        ({"max_cores": 0}, "max_cores must be from 0.001 to"),
        ({"interarrival": 1e308}, "interarrival must be from 0 to 1e\\+06, not 1e\\+308"),
        ({"epoch": 5e-324}, "epoch must be from 0.001 to 86400"),
        ({"epoch": "1s"}, "epoch must be from 0.001 to 86400"),
        ({"cores": 10**400}, "cores must be from 1 to 1e\\+07"),
        ({"epoch": -1}, "epoch must be from 0.001 to 86400, not -1"),
        ({"load": 0.5, "interarrival": 0.0}, "arrive all at once"),
    ],
)
def test_wrong_settings_are_named(settings, says):
    with pytest.raises(InvalidSetting, match=says):
        Settings(**settings)


def test_wrong_names_and_files_raise(tmp_path):
    with pytest.raises(UnknownPolicy, match="oracle:POLICY"):
        dask_slaq.simulate(["no such"])
    with pytest.raises(CurveError, match="cannot be read"):
        dask_slaq.simulate(["fair"], tmp_path / "missing")
    with pytest.raises(TypeError):
        dask_slaq.simulate(["fair"], no_such_setting=1)
