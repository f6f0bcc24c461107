"""Forecasts are well formed, accurate, bounded in memory and independent of units."""

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from loss_curves import without_huge_start

from dask_slaq.core.errors import NonFiniteLoss
from dask_slaq.core.forecast import FitStatus, Forecast, LossPredictor
from dask_slaq.core.forecast import predictor as loss_module
from dask_slaq.core.forecast.history import Histories, normalize_window
from dask_slaq.core.forecast.types import HORIZONS

K = np.arange(400)
#: Smooth curves from 1 to 0, by iteration.
FAMILIES = {
    "exponential, slow": np.exp(-0.02 * K),
    "exponential": np.exp(-0.1 * K),
    "exponential, quick": np.exp(-0.5 * K),
    "power 1/2": (1 + K) ** -0.5,
    "power 1": (1 + K) ** -1.0,
    "power 1, late": (1 + K / 10) ** -1.0,
    "power 2": (1 + K / 5) ** -2.0,
    "two rates": 0.5 * np.exp(-0.3 * K) + 0.5 * np.exp(-0.03 * K),
}
reports = st.lists(st.floats(-1e300, 1e300) | st.sampled_from([0.0, 1.0, 5e-324]), max_size=90)


def predict(
    losses: np.ndarray | list[float], *, every: int = 1, target: float | None = None
) -> Forecast:
    """Report `losses` of one job, fitting after each `every` of them and at the end."""
    predictor = LossPredictor()
    predictor.add("job", target=target)
    for k, loss in enumerate(losses, start=1):
        predictor.report("job", loss)
        if k % every == 0:
            predictor.fit()
    predictor.fit()
    return predictor.forecast(["job"])


def fall(forecast: Forecast, ahead: float) -> float:
    return float(np.interp(ahead, forecast.horizons, forecast.reduction[0]))


def assert_well_formed(forecast: Forecast) -> None:
    """What every forecast keeps, whatever was reported."""
    n = len(forecast.status)
    reduction = forecast.reduction
    assert reduction.shape == (n, len(forecast.horizons))
    assert np.isfinite(reduction).all()
    assert forecast.horizons[0] == 0
    assert (reduction[:, 0] == 0).all()
    assert (np.diff(reduction, axis=1) >= 0).all()
    slope = np.diff(reduction, axis=1) / np.diff(forecast.horizons)
    assert (np.diff(slope, axis=1) <= 1e-9 * slope[:, :1] + 1e-300).all()
    assert (forecast.remaining >= reduction[:, -1]).all()
    for finite in (forecast.remaining, forecast.largest_change, forecast.noise):
        assert (np.isfinite(finite) & (finite >= 0)).all()
    reported = forecast.n_reports > 0
    assert np.isfinite(forecast.level[reported]).all()
    assert np.isnan(forecast.level[~reported]).all()
    assert set(forecast.status) <= set(FitStatus)


# Any input


@given(reports, st.integers(1, 20), st.none() | st.just(0.0))
def test_any_reports_give_a_well_formed_forecast(
    losses: list[float], every: int, target: float | None
) -> None:
    forecast = predict(losses, every=every, target=target)
    assert_well_formed(forecast)
    assert forecast.n_reports[0] == len(losses)
    if losses:
        kept = without_huge_start(losses, 32)
        assert forecast.start[0] == kept[0]
        assert forecast.largest_change[0] == np.abs(np.diff(kept)).max(initial=0.0)


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_few_reports_are_a_status(n: int) -> None:
    forecast = predict(FAMILIES["exponential"][:n])
    assert forecast.status[0] == FitStatus.TOO_FEW_REPORTS
    assert_well_formed(forecast)


def test_a_job_that_began_is_said_to_fall_as_most_do() -> None:
    began, fell = predict([8.0]), predict([8.0, 6.0, 5.0])
    assert fall(began, 5) == pytest.approx(began.remaining[0] / 2, rel=0.5)
    assert fell.remaining[0] > 0
    assert_well_formed(began)
    assert_well_formed(fell)


def test_constant_job_has_nothing_to_gain() -> None:
    forecast = predict([3.0] * 50)
    assert forecast.level[0] == 3
    assert forecast.reduction.max() == 0
    assert forecast.noise[0] == 0


def test_rising_job_diverges_until_it_falls_again() -> None:
    up = np.linspace(1, 2, 20)
    forecast = predict(up)
    assert forecast.status[0] == FitStatus.DIVERGING
    assert forecast.reduction.max() < 1e-12
    assert predict([*up, *np.linspace(2, 0, 20)]).status[0] == FitStatus.OK


@pytest.mark.parametrize("late", [False, True])
def test_a_spike_changes_little(late: bool) -> None:
    clean = FAMILIES["exponential, slow"][:40]
    spiky = clean.copy()
    spiky[-1 if late else -6] += 5.0
    forecast = predict(spiky)
    assert forecast.status[0] == FitStatus.OK
    assert abs(forecast.level[0] - clean[-1]) < 0.05
    assert fall(forecast, 10) == pytest.approx(fall(predict(clean), 10), rel=0.5)


# Units


curves = st.tuples(
    st.sampled_from(["exponential, slow", "power 1/2", "power 1, late"]),
    st.integers(5, 120),
    st.sampled_from([0.0, 0.01, 0.1]),
    st.integers(0, 2**32 - 1),
)


def _curve(drawn: tuple[str, int, float, int]) -> np.ndarray:
    name, n, noise, seed = drawn
    return FAMILIES[name][:n] + noise * np.random.default_rng(seed).standard_normal(n)


@given(curves, st.integers(-900, 900))
def test_scaling_the_losses_scales_the_forecast(
    drawn: tuple[str, int, float, int], exponent: int
) -> None:
    losses, factor = _curve(drawn), 2.0**exponent
    one, other = predict(losses, every=4), predict(losses * factor, every=4)
    assert other.status[0] == one.status[0]
    for name in ("reduction", "level", "remaining", "noise", "start", "largest_change"):
        np.testing.assert_allclose(
            getattr(other, name) / factor, getattr(one, name), rtol=1e-9, atol=1e-12
        )


@given(curves, st.floats(-10, 10))
def test_adding_a_constant_changes_the_level_alone(
    drawn: tuple[str, int, float, int], constant: float
) -> None:
    losses = _curve(drawn) - 20.0  # of a kind that zero does not bound
    one, other = predict(losses, every=4), predict(losses + constant, every=4)
    assert other.status[0] == one.status[0]
    np.testing.assert_allclose(other.level - constant, one.level, atol=1e-6)
    for name in ("reduction", "remaining", "noise", "largest_change"):
        np.testing.assert_allclose(getattr(other, name), getattr(one, name), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("losses", [100.0 * 0.6 ** np.arange(6), [10.0, 1.0]])
def test_a_loss_that_was_never_negative_is_not_said_to_be(losses: list[float]) -> None:
    forecast = predict(losses)
    assert (forecast.level[:, None] - forecast.reduction >= -1e-12).all()
    assert (forecast.remaining <= forecast.level).all()


# Many jobs


def test_fit_touches_only_jobs_that_reported() -> None:
    predictor = LossPredictor()
    for job in "ab":
        predictor.add(job)
        for loss in FAMILIES["power 1"][:20]:
            predictor.report(job, loss)
    assert predictor.fit() == 2
    assert predictor.fit() == 0
    before = predictor.forecast(["a"])
    predictor.report("b", 0.01)
    assert predictor.fit() == 1
    after = predictor.forecast(["a"])
    np.testing.assert_array_equal(after.reduction, before.reduction)
    assert after.level == before.level


def test_a_job_added_again_starts_afresh() -> None:
    predictor = LossPredictor()
    predictor.add("job", target=-7.0)
    for loss in FAMILIES["power 1"]:
        predictor.report("job", loss)
    predictor.fit()
    predictor.report("job", 0.0)
    predictor.remove("job")
    assert predictor.fit() == 0
    predictor.add("job")
    fresh = predictor.forecast(["job"])
    assert fresh.n_reports[0] == 0
    assert fresh.remaining[0] == 0
    for loss in FAMILIES["exponential"][:20]:
        predictor.report("job", loss)
    predictor.fit()
    np.testing.assert_array_equal(
        predictor.forecast(["job"]).reduction,
        predict(FAMILIES["exponential"][:20], every=20).reduction,
    )


def _bytes(predictor: LossPredictor) -> int:
    tables = (predictor._history, predictor._backtest, predictor._cache, predictor._bands)
    return sum(array.nbytes for table in tables for array in table.column.values())


def test_memory_is_bounded() -> None:
    predictor = LossPredictor()
    for i in range(16):
        predictor.add(f"job-{i}")
    size = _bytes(predictor)
    for k in range(5000):
        predictor.report("job-0", 1 / (1 + k))
    for i in range(16, 500):
        predictor.remove(f"job-{i - 16}")
        predictor.add(f"job-{i}")
    assert _bytes(predictor) == size
    predictor.add("one more")
    assert size < _bytes(predictor) <= 2 * size


# Mistakes


def test_refused_reports_change_nothing() -> None:
    def run(*refused: object) -> Forecast:
        predictor = LossPredictor()
        predictor.add("job")
        for k in range(10):
            predictor.report("job", float(FAMILIES["power 1"][k]))
            for loss in refused:
                with pytest.raises(NonFiniteLoss, match="'job'"):
                    predictor.report("job", loss)  # type: ignore[arg-type]
        predictor.fit()
        return predictor.forecast(["job"])

    one = run()
    other = run(np.nan, np.inf, -np.inf, 1e301, -1e301, 10**400, None, "low", [1.0, 2.0])
    for name in Forecast.__dataclass_fields__:
        np.testing.assert_array_equal(getattr(other, name), getattr(one, name))


@pytest.mark.parametrize("loss", [3, True, np.float32(2.5), np.int64(-1), np.array(0.5)])
def test_any_number_is_a_loss(loss: float) -> None:
    assert predict([loss]).level[0] == float(loss)


# Accuracy


@pytest.mark.parametrize("name", FAMILIES)
def test_smooth_curves_are_forecast(name: str) -> None:
    curve, predictor = FAMILIES[name], LossPredictor()
    predictor.add("job")
    errors, falls = [], []
    for k in range(150):
        predictor.report("job", curve[k])
        predictor.fit()
        if k >= 8:
            forecast = predictor.forecast(["job"])
            errors.append(abs(forecast.level[0] - fall(forecast, 10) - curve[k + 10]))
            falls.append(curve[k] - curve[k + 10])
    assert np.mean(errors) < 0.006  # of the range
    # Beside it, the share of the range that no curve is denied.
    assert np.sum(errors) < 0.3 * np.sum(falls) + 1e-3 * len(errors)


@pytest.mark.parametrize(
    ("name", "noise"),
    [("exponential, slow", 0.05), ("power 2", 0.05), ("exponential", 0.01), ("power 1", 0.01)],
)
def test_noisy_curves_are_forecast(name: str, noise: float) -> None:
    curve, rng = FAMILIES[name], np.random.default_rng(1)
    jobs, predictor = [str(i) for i in range(8)], LossPredictor()
    for job in jobs:
        predictor.add(job)
    errors, naive = [], []
    for k in range(120):
        seen = curve[k] + noise * rng.standard_normal(len(jobs))
        for job, loss in zip(jobs, seen, strict=True):
            predictor.report(job, loss)
        predictor.fit()
        if k >= 20:
            forecast = predictor.forecast(jobs)
            ahead = forecast.level - forecast.reduction[:, list(HORIZONS).index(10)]
            errors.append(np.abs(ahead - curve[k + 10]))
            naive.append(np.abs(seen - curve[k + 10]))
    assert np.mean(errors) < 0.75 * np.mean(naive)
    assert np.mean(errors) < 0.01 + 0.5 * noise


@pytest.mark.parametrize("name", FAMILIES)
def test_the_range_is_foreseen(name: str) -> None:
    forecast = predict(FAMILIES[name][:30])
    whole = forecast.start[0] - forecast.level[0] + forecast.remaining[0]
    assert whole == pytest.approx(FAMILIES[name][0] - FAMILIES[name][-1], rel=0.35)


def test_a_slow_fall_under_noise_shows_over_the_whole_run() -> None:
    # Over the 32 newest reports the fall is a quarter of the noise.
    k, rng = np.arange(3000), np.random.default_rng(0)
    forecast = predict(1 - k / 6000 + 0.02 * rng.standard_normal(3000), every=25)
    assert forecast.level[0] == pytest.approx(0.5, abs=0.02)
    assert 0.25 < fall(forecast, 1000) * 6 < 2


# Noise


@given(st.integers(0, 2**32 - 1), st.floats(1e-3, 1e3))
def test_noise_is_measured(seed: int, noise: float) -> None:
    rng = np.random.default_rng(seed)
    forecast = predict(rng.standard_normal(64) * noise, every=64)
    # Of 4,000 seeds: 0.23 to 1.96 of it, 98 % of them 0.46 to 1.58.
    assert 0.15 * noise < forecast.noise[0] < 2.5 * noise


@pytest.mark.parametrize("name", FAMILIES)
def test_a_smooth_curve_has_no_noise(name: str) -> None:
    assert predict(FAMILIES[name][:40]).noise[0] < 1e-9


# One in a hundred runs of five random reports looks like a curve that has ended; the next tell.
@given(st.integers(0, 2**32 - 1), st.integers(10, 120))
def test_a_noisy_job_is_never_given_up(seed: int, n: int) -> None:
    forecast = predict(np.random.default_rng(seed).standard_normal(n), every=7)
    if forecast.status[0] == FitStatus.OK:
        assert fall(forecast, 1) > 0


def test_doubt_shrinks_with_the_number_of_reports() -> None:
    rng = np.random.default_rng(0)
    plateau = np.concatenate([np.linspace(5, 0, 30), np.zeros(2000)])
    plateau += 0.05 * rng.standard_normal(len(plateau))
    early, late = predict(plateau[:80], every=10), predict(plateau, every=10)
    assert 0 < fall(late, 10) < fall(early, 10) < 0.1


# Target


def test_target_gives_the_range_until_the_curve_can() -> None:
    first = predict([2.0], target=0.5)
    assert first.remaining[0] == 1.5
    assert 0 < first.reduction[0, 1] < 1.5
    assert_well_formed(first)
    later = FAMILIES["exponential"][:20]
    np.testing.assert_array_equal(predict(later, target=-50.0).reduction, predict(later).reduction)


@pytest.mark.parametrize(
    "losses",
    [
        [10.0, 9.0, 8.0, 0.0, *(6 + 2 * 0.8**k for k in range(20))],  # a glitch downwards
        [1.0, 3.0, 4.0, *(3.9 * 0.9**k for k in range(6))],  # a start from below
        [*(0.8**k for k in range(20)), 0.9, *(0.9 * 0.8**k for k in range(8))],  # a restart
    ],
)
def test_what_falls_again_is_not_given_up(losses: list[float]) -> None:
    forecast = predict(losses)
    assert forecast.status[0] == FitStatus.OK
    assert fall(forecast, 10) > 0.005 * forecast.level[0]


def test_target_stands_in_for_a_diverging_curve() -> None:
    forecast = predict(np.linspace(1, 2, 20), target=0.0)
    assert forecast.status[0] == FitStatus.DIVERGING
    assert forecast.remaining[0] == forecast.level[0]
    assert_well_formed(forecast)


def test_a_target_that_is_reached_says_nothing() -> None:
    np.testing.assert_array_equal(predict([2.0], target=3.0).reduction, predict([2.0]).reduction)


# Parts


def stored(losses: list[float], window: int) -> tuple[Histories, np.ndarray]:
    history = Histories(window)
    row = np.array([history.acquire()])
    history.append(np.repeat(row, len(losses)), np.array(losses))
    return history, row


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=300),
    st.sampled_from([8, 9, 16]),
    st.integers(0, 5),
)
def test_history_keeps_newest_reports_and_means_of_the_whole_run(
    losses: list[float], window: int, back: int
) -> None:
    back = min(back, len(losses) - 1)
    history, rows = stored(losses, window)
    then = without_huge_start(losses, window)[: len(losses) - back]
    kept, known = history.recent(rows, np.array([back]))
    assert known[0] == min(window, len(losses)) - back
    np.testing.assert_array_equal(kept[0, : known[0]], then[::-1][: known[0]])
    means, known, stride, age = history.whole(rows, np.array([back]))
    size = int(stride[0])
    blocks = len(then) // size
    if blocks:
        assert known[0] == blocks <= window
        expected = np.reshape(then[: blocks * size], (blocks, size)).mean(axis=1)
        np.testing.assert_allclose(means[0, :blocks], expected[::-1], rtol=1e-9, atol=1e-9)
        assert age[0] == len(then) - 1 - ((blocks - 1) * size + (size - 1) / 2)


@given(st.lists(st.floats(-1e3, 1e3), min_size=6, max_size=40), st.integers(1, 5))
@example([1.0, 202.0, 0.0, 0.0, 1.0, -1.0], 1)
def test_looking_back_shows_what_was_seen_then(losses: list[float], back: int) -> None:
    (now, rows), (then, _) = stored(losses, 64), stored(losses[:-back], 64)
    at_once, since = (without_huge_start(seen, 64) for seen in (losses[:-back], losses))
    assume(list(at_once) == list(since)[:-back])  # else a huge start was cut since
    one, other = (
        normalize_window(now, rows, np.array([back])),
        normalize_window(then, rows, np.array([0])),
    )
    for name, a, b in zip(one._fields, one, other, strict=True):
        if name in ("zero", "logs", "log_noise"):  # the lowest report is known as of now only
            continue
        np.testing.assert_array_equal(a, b, err_msg=name)


def test_a_job_seldom_fitted_is_judged_in_hindsight() -> None:
    seldom, often = (
        predict(FAMILIES["exponential"][:30], every=30),
        predict(FAMILIES["exponential"][:30]),
    )
    truth = FAMILIES["exponential"][39]
    for forecast in (seldom, often):
        assert forecast.level[0] - fall(forecast, 10) == pytest.approx(truth, abs=0.005)


# Bounded work


def crowd(monkeypatch: pytest.MonkeyPatch, most: int, rounds: int) -> tuple[LossPredictor, list]:
    """40 jobs, of which `most` are fitted at a time; job 0 leaves its curve near the end."""
    monkeypatch.setattr(loss_module, "MOST_FITS", most)
    monkeypatch.setattr(loss_module, "JOBS_PER_FIT", 8 if most < 40 else 1)
    predictor, fitted = LossPredictor(), []
    for job in range(40):
        predictor.add(str(job))
    for k in range(rounds):
        for job in range(40):
            loss = 0.9 ** (k * (1 + job % 3)) + 0.01 * job
            predictor.report(str(job), loss + 2.0 * (job == 0 and k >= rounds - 4))
        fitted.append(predictor.fit())
    return predictor, fitted


def test_only_the_most_urgent_are_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor, fitted = crowd(monkeypatch, 5, 30)
    assert fitted[0] == 40, "a job without any forecast does not wait"
    assert max(fitted[1:]) == 5
    every, _ = crowd(monkeypatch, 40, 30)
    names = list(map(str, range(40)))
    some, all_of_them = predictor.forecast(names), every.forecast(names)
    assert (some.n_reports == 30).all(), "who is not fitted is moved along"
    np.testing.assert_allclose(some.level, all_of_them.level, atol=1e-3)
    np.testing.assert_allclose(some.reduction[1:], all_of_them.reduction[1:], atol=0.01)
    assert some.status[0] == FitStatus.DIVERGING, "who surprised most went first"


def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_module, "MOST_FITS", 2)
    predictor, seen = LossPredictor(), np.zeros(40, dtype=int)
    for job in range(40):
        predictor.add(str(job))
    original = predictor._fit
    monkeypatch.setattr(predictor, "_fit", lambda rows: (np.add.at(seen, rows, 1), original(rows)))
    for k in range(100):
        for job in range(40):
            predictor.report(str(job), 1.0 / (1 + k) + (k % 2) * (job < 2))
        predictor.fit()
    assert seen.min() >= 2, "two jobs that surprise each time do not keep the others out"
