"""The prediction benchmark forecasts from history alone, and scores as documented."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import prediction
from benchmarks.forecasting import rivals, scores
from benchmarks.forecasting.default_predictor import fit_seconds, forecast_all
from dask_slaq.lab.simulation.workload.curves import LossCurve

HORIZONS = np.array(scores.HORIZONS, dtype=float)
K = np.arange(60.0)
NEEDS = {
    name: pytest.mark.skipif(
        name not in rivals.available()[0], reason=f"{rivals.PACKAGES.get(name)} is not installed"
    )
    for name in rivals.RIVALS
}


def curve(loss, group="g", name="c", noisy=False):
    return LossCurve(name, group, np.asarray(loss, dtype=float), noisy)


def truth(trials):
    return {trial.id: trial.truth for trial in trials}


# What is forecast


def test_forecasts_start_at_five_reports_and_look_ahead_of_the_last():
    (trial,) = scores.prepare([curve(np.geomspace(1, 0.1, 20))])
    assert trial.origins.tolist() == list(range(5, 20))
    assert trial.truth[0].tolist() == trial.curve.loss[[5, 9, 14]].tolist()
    assert np.isnan(trial.truth[-1]).tolist() == [False, True, True]


def test_iterations_after_convergence_are_not_counted():
    moving = np.geomspace(1, 0.1, 20)
    (trial,) = scores.prepare([curve(np.r_[moving, np.full(500, moving[-1] + 1e-14)])])
    assert len(trial.curve.loss) == 20
    assert scores.converged(moving) == 20
    assert scores.prepare([curve(np.ones(50)), curve(moving[:5])]) == []


# How it is scored


def test_scores_of_the_truth_and_of_no_change():
    trials = scores.prepare([curve(1 / (1 + K)), curve(0.9**K, "h", "d")])
    perfect = scores.score(trials, truth(trials))
    held = scores.score(trials, {t.id: np.repeat(t.newest[:, None], 3, 1) for t in trials})
    for horizon in ("1", "5", "10"):
        figures = perfect[horizon]
        assert [v for v in figures.values() if isinstance(v, float)] == [0.0] * 5
        assert set(figures["by_algorithm"]) == {"g", "h"}
        assert held[horizon]["reduction"] == pytest.approx(1.0)
        assert 0 < held[horizon]["mean_range"] < 1


def test_groups_weigh_alike_and_curves_within_them():
    # Off by 10 % on the one curve of a, by 20 % and 40 % on the two of b, of other lengths.
    loss = {"a": 0.99 ** np.arange(30.0), "b1": 0.9 ** np.arange(90.0), "b2": 5 + K[::-1]}
    trials = scores.prepare([curve(v, name[0], name) for name, v in loss.items()])
    off = {"a": 1.1, "b1": 1.2, "b2": 0.6}
    found = scores.score(trials, {t.id: off[t.id] * t.truth for t in trials})["10"]
    assert found["by_algorithm"] == pytest.approx({"a": 0.1, "b": 0.3})
    assert found["mean_rel"] == pytest.approx(0.2)
    assert found["median_rel"] in (pytest.approx(0.1), pytest.approx(0.2))  # half on either side
    assert found["p95_rel"] == pytest.approx(0.4)
    assert scores.mean_error(trials[1], 1.2 * trials[1].truth) == pytest.approx(0.2)


def test_a_true_loss_of_zero_has_no_relative_error():
    trials = scores.prepare([curve([5, 4, 3, 2, 1.5, 0, 1, 0.5])])
    found = scores.score(trials, {"c": trials[0].truth + 0.1})["1"]
    assert found["mean_rel"] == pytest.approx((0.1 / 1 + 0.1 / 0.5) / 2)
    assert found["mean_range"] == pytest.approx(0.02)


# Predictors


@pytest.mark.parametrize(
    ("name", "loss", "error"),
    [
        ("hold", np.ones(60), 1e-12),
        ("last-delta", 100 - K, 1e-9),
        ("paper", 3 + 0.9**K, 1e-4),
        ("paper", 2 + 1 / (0.01 * K**2 + 0.3 * K + 0.5), 1e-4),
        pytest.param("holt-damped", 0.98**K, 1e-2, marks=NEEDS["holt-damped"]),
        pytest.param("arima", 0.98**K, 1e-2, marks=NEEDS["arima"]),
    ],
)
def test_each_rival_forecasts_the_curves_it_is_made_for(name, loss, error):
    record = rivals.follow([name], loss, [20, 35, 50], scores.HORIZONS)
    expected = loss[np.array([20, 35, 50])[:, None] - 1 + np.array(scores.HORIZONS)]
    np.testing.assert_allclose(record.forecasts[name], expected, rtol=error)
    assert record.failures[name] == 0


def test_a_rival_that_fails_is_held_and_counted(monkeypatch):
    class Broken:
        def forecast(self, history, horizons):
            if len(history) == 6:
                raise RuntimeError("no fit")
            return np.full(len(horizons), np.nan if len(history) == 7 else 1.0)

    monkeypatch.setitem(rivals.RIVALS, "broken", Broken)
    record = rivals.follow(["broken"], K, [5, 6, 7], scores.HORIZONS)
    assert record.failures["broken"] == 2
    assert record.forecasts["broken"][:, 0].tolist() == [1.0, K[5], K[6]]


def test_a_missing_package_is_named_and_its_rival_left_out(monkeypatch):
    monkeypatch.setattr(rivals, "PACKAGES", {"holt-damped": "no_such_package"})
    names, missing = rivals.available()
    assert "holt-damped" not in names and "paper" in names
    assert missing == [
        "rival holt-damped is left out: it needs no_such_package "
        "(pip install 'dask-slaq[benchmarks]')"
    ]


def test_the_default_predictor_sees_no_future():
    loss = 1 / (1 + K)
    changed = np.r_[loss[:30], loss[30:][::-1]]
    trials = scores.prepare([curve(loss), curve(changed, name="d")])
    ours = forecast_all(trials)
    same = 30 - scores.FIRST + 1  # as of five reports to as of thirty
    np.testing.assert_array_equal(ours.losses["c"][:same], ours.losses["d"][:same])
    assert (ours.losses["c"][same:] != ours.losses["d"][same:]).any()


# The command


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Two small curve files, and refits of few jobs."""
    monkeypatch.setattr(prediction, "fit_seconds", lambda curves: fit_seconds(curves, (1, 2)))
    rng = np.random.default_rng(0)
    lines = [
        {"id": "smooth", "algorithm": "gd", "loss": (1 + 0.9**K).tolist()},
        {"id": "noisy", "model": "net", "loss": (2 - K / 60 + 0.1 * rng.random(60)).tolist()},
        {"id": "short", "loss": [3, 2, 1]},
    ]
    paths = []
    for i, part in enumerate((lines[:1], lines[1:])):
        paths.append(tmp_path / f"{i}.jsonl")
        paths[-1].write_text("".join(json.dumps(line) + "\n" for line in part))
    return [str(path) for path in paths]


CHEAP = ["--rivals", "hold,paper", "--processes", "1"]


def invoke(*arguments):
    return CliRunner().invoke(prediction.main, [str(a) for a in arguments])


def test_json_has_the_keys_that_others_read(files):
    one, found = (
        json.loads(invoke("--curves", *files, *CHEAP[:3], n, "--json", "-").stdout) for n in "12"
    )
    assert one["predictors"] == found["predictors"]  # in another process
    assert found["default"] == prediction.DEFAULT
    assert set(found["predictors"]) == {prediction.DEFAULT, "hold", "paper"}
    keys = {"mean_rel", "median_rel", "p95_rel", "mean_range", "reduction", "by_algorithm"}
    for figures in found["predictors"].values():
        assert set(figures) == {"smooth", "noisy"}
        for kind, algorithm in (("smooth", "gd"), ("noisy", "net")):
            assert set(figures[kind]) == {"1", "5", "10"}
            for at in figures[kind].values():
                assert keys <= set(at) and set(at["by_algorithm"]) == {algorithm}
    assert set(found["curves"]) == {"smooth", "noisy"}
    assert found["curves"]["smooth"]["paper"] == pytest.approx(0.0, abs=1e-4)
    assert all(0 <= share <= 1 for share in found["coverage"]["smooth"].values())
    assert all(0 < width < 1 for width in found["band_width"]["smooth"].values())
    assert found["settings"]["too_short"] == 1
    assert found["best_rival"]["smooth"]["10"] == "paper"
    assert set(found["fit_seconds"]) == {"1", "2"}


def test_a_table_is_written(files):
    result = invoke("--curves", files[0], f"--curves={files[1]}", *CHEAP)
    assert result.exit_code == 0, result.output
    assert "1 smooth curves" in result.stdout and "paper" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--rivals", "oracle"], "unknown rival oracle: one of hold, last-delta"),
        (["--curves", "missing.jsonl"], "missing.jsonl: cannot be read"),
        (["--curves", "--json", "-"], "Option '--curves' requires an argument"),
    ],
)
def test_mistakes_are_named(arguments, says):
    result = invoke(*arguments)
    assert result.exit_code != 0 and says in result.output
