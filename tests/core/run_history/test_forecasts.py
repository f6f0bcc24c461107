"""Laws of forecasts that rest on past runs."""

import numpy as np
import pytest

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import FitStatus, LossPredictor
from dask_slaq.core.run_history import Kind, PastRun, PastRuns, thinned

KIND = Kind("sgd", (("lr", -2.0),))


def run(loss, name="past", kind=KIND, **fields):
    """A run with one loss per iteration."""
    loss = np.asarray(loss, dtype=float)
    iteration = np.arange(1, len(loss) + 1)
    kept = thinned(iteration)
    return PastRun(name, kind, iteration[kept], loss[kept], len(loss), **fields)


def memory_of(*runs):
    memory = PastRuns()
    for one in runs:
        memory.add(one)
    return memory


def geometric(rate, n=40, size=3.0, end=1.0):
    return end + size * rate ** np.arange(n)


def followed(memory, losses, kind=KIND, after=None):
    """The forecast after each report, or after some."""
    predictor = LossPredictor(memory)
    predictor.add("job", kind=kind)
    found = []
    for loss in losses[:after]:
        predictor.report("job", float(loss))
        predictor.fit()
        found.append(predictor.forecast(["job"]))
    return predictor, found


def equal(one, other):
    return all(
        np.array_equal(getattr(one, name), getattr(other, name), equal_nan=True)
        for name in vars(one)
    )


def test_before_the_first_report_the_forecast_is_the_like_curve_in_units_of_its_range():
    past = geometric(0.8)
    predictor = LossPredictor(memory_of(run(past)))
    predictor.add("job", kind=KIND)
    forecast = predictor.forecast(["job"])
    horizons = forecast.horizons[:20]
    fallen = np.interp(horizons, np.arange(1, 41), (past[0] - past) / np.ptp(past))
    # From 0 to 1 iteration nothing has fallen: the hull of the curve starts a little higher.
    assert forecast.reduction[0, 3:20] == pytest.approx(fallen[3:], abs=0.05)
    assert forecast.remaining[0] == pytest.approx(1.0)
    assert forecast.status[0] == FitStatus.OK
    slope = np.diff(forecast.reduction[0]) / np.diff(forecast.horizons)
    assert (slope >= -1e-12).all() and (np.diff(slope) <= 1e-12).all()


def test_no_memory_and_no_like_run_give_the_same_forecasts_to_the_last_bit():
    losses = geometric(0.9) + 0.05 * np.random.default_rng(0).standard_normal(40)
    _, plain = followed(None, losses, kind=None)
    other = memory_of(run(geometric(0.5), kind=Kind("another")))
    for memory, kind in ((None, KIND), (PastRuns(), KIND), (other, KIND), (other, None)):
        _, found = followed(memory, losses, kind)
        assert all(map(equal, plain, found))


def test_runs_of_like_kind_tell_the_range_after_a_few_reports():
    rates = (0.9, 0.92, 0.94)
    memory = memory_of(*(run(geometric(r), str(r)) for r in rates))
    losses = geometric(0.93)
    _, found = followed(memory, losses)
    _, plain = followed(None, losses)
    for k in (1, 2, 3, 5, 8):
        true = losses[k - 1] - losses[-1]
        assert abs(found[k - 1].remaining[0] - true) < 0.2 * np.ptp(losses)
        assert abs(found[k - 1].remaining[0] - true) <= abs(plain[k - 1].remaining[0] - true) + 0.1


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e6])
def test_memory_that_misleads_is_overruled_within_ten_reports(scale):
    """A plateau and a cliff are remembered, and the job falls from the beginning."""
    cliff = 1.0 + 3.0 / (1.0 + np.exp(np.arange(40.0) - 30.0))
    losses = scale * geometric(0.8)
    predictor, found = followed(memory_of(run(cliff), run(cliff, "again")), losses, after=14)
    _, plain = followed(None, losses, after=14)
    for one, other in zip(found[9:], plain[9:], strict=True):
        assert one.reduction[0] == pytest.approx(other.reduction[0], rel=0.03)
        assert one.remaining[0] == pytest.approx(other.remaining[0], rel=0.03)
    assert predictor.likeness("job") == 0


def test_a_forecast_says_on_how_many_runs_it_rests():
    memory = memory_of(*(run(geometric(0.8), str(i)) for i in range(12)))
    predictor, _ = followed(memory, geometric(0.8), after=6)
    assert predictor.likeness("job") == 8
    assert followed(memory, geometric(0.8), Kind("another"), 6)[0].likeness("job") == 0


DEGENERATE = {
    "flat": np.ones(9),
    "rising": np.arange(1.0, 10.0),
    "one point": [3.0],
    "nan": [3.0, np.nan, 1.0],
    "infinite": [np.inf, 2.0, 1.0],
    "no point": [],
    "zero": np.zeros(5),
    "huge": np.linspace(1e300, -1e300, 9),
    "tiny": np.linspace(1e-300, 0.0, 9),
    "negative": -geometric(0.8)[::-1],
    "two points": [2.0, 1.0],
}


ODD_LOSSES = [
    *(np.ones(20), np.arange(20.0), -np.arange(20.0)),
    *(1e300 * geometric(0.8) / 4, 1e-305 * geometric(0.8)),
]


@pytest.mark.parametrize(
    ("name", "losses"),
    [*((name, geometric(0.8)) for name in DEGENERATE), *(("huge", odd) for odd in ODD_LOSSES)],
)
def test_degenerate_runs_do_no_harm(name, losses):
    odd = np.asarray(DEGENERATE[name], dtype=float)
    iteration = np.arange(1, len(odd) + 1)
    past = [PastRun(str(i), KIND, iteration, odd, len(odd), work=np.nan) for i in range(3)]
    for memory in (memory_of(*past), memory_of(*past, run(geometric(0.8), "sound"))):
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            _, found = followed(memory, losses, after=8)
        for forecast in found:
            assert np.isfinite(forecast.reduction).all() and np.isfinite(forecast.remaining).all()
            assert (np.diff(forecast.reduction[0]) >= 0).all()
            assert forecast.remaining[0] >= forecast.reduction[0, -1] - 1e-12


def test_stopped_runs_do_not_tell_how_far_a_loss_falls():
    memory = memory_of(run(geometric(0.8)[:5], outcome="stopped"))
    _, found = followed(memory, geometric(0.8))
    _, plain = followed(None, geometric(0.8))
    assert all(map(equal, plain, found))


def test_a_kind_that_is_known_later_counts_as_if_known_at_once():
    memory, losses = memory_of(run(geometric(0.8))), geometric(0.85)
    _, early = followed(memory, losses, after=6)
    predictor = LossPredictor(memory)
    predictor.add("job")
    for k, loss in enumerate(losses[:6]):
        predictor.report("job", loss)
        predictor.fit()
        if k == 3:
            predictor.set_kind("job", KIND)
    assert equal(predictor.forecast(["job"]), early[-1])


def test_a_first_like_run_counts_for_later_jobs_however_many_run_already():
    memory, losses = PastRuns(), geometric(0.8)[:5]
    predictor = LossPredictor(memory)
    early = [f"early {i}" for i in range(20)]
    for name in early:
        predictor.add(name, kind=KIND)
    memory.add(run(geometric(0.8)))
    predictor.remove(early.pop(3))
    predictor.add("late", kind=KIND)
    for loss in losses:
        for name in (*early, "late"):
            predictor.report(name, float(loss))
        predictor.fit()
    _, alone = followed(memory, losses)
    _, blind = followed(PastRuns(), losses)
    assert equal(predictor.forecast(["late"]), alone[-1])
    assert equal(predictor.forecast(early[:1]), blind[-1])
    assert [predictor.likeness(name) for name in ("late", *early)] == [1] + [0] * 19


def test_a_row_that_is_reused_remembers_nothing():
    memory = memory_of(run(geometric(0.8)))
    predictor = LossPredictor(memory)
    for kind in (KIND, None, KIND):
        predictor.add("job", kind=kind)
        assert (predictor.forecast(["job"]).remaining[0] > 0) == (kind is not None)
        assert predictor.likeness("job") == (kind is not None)
        predictor.report("job", 1.0)
        predictor.fit()
        predictor.remove("job")


# In an engine


class Plain:
    """A user's predictor that takes no kind."""

    def __init__(self):
        self._predictor = LossPredictor()

    def add(self, job, *, target=None):
        self._predictor.add(job, target=target)

    def __getattr__(self, name):
        return getattr(self.__dict__["_predictor"], name)


@pytest.mark.parametrize("predictor", [None, Plain()])
def test_runs_are_remembered_with_their_running_times(predictor):
    memory = PastRuns()
    engine = Engine("first-to-target", past_runs=memory, predictor=predictor)
    engine.add_job("one", 0.0, kind=KIND)
    for k, loss in enumerate(geometric(0.8)):
        for _ in range(4):
            engine.observe_task("one", 0.5, at_once=4)
        engine.report("one", loss, float(k))
        engine.reallocate({"a": 4}, float(k))
    engine.remove_job("one", 40.0, "done")
    if predictor is not None:
        assert len(memory) == 0
        return
    (kept,) = memory
    assert (kept.iterations, kept.outcome, kept.tasks, kept.ended) == (40, "done", 4.0, 40.0)
    assert kept.work == pytest.approx(2.0)
    engine.add_job("two", 41.0, kind=KIND)
    engine.add_job("three", 41.0)
    engine.reallocate({"a": 4}, 41.0)
    assert engine.grants["two"].share > 0
    assert engine.likeness("two") == 1 and engine.likeness("three") == 0
    speeds = engine.jobs.runtimes.speeds(np.array([engine.jobs.row("two")]))
    assert speeds.work[0] == pytest.approx(2.0) and speeds.width[0] == pytest.approx(4.0)


def test_a_job_without_an_outcome_is_not_remembered():
    memory = PastRuns()
    engine = Engine(past_runs=memory)
    engine.add_job("one", 0.0, kind=KIND)
    engine.report("one", 1.0, 0.0)
    engine.remove_job("one", 1.0)
    assert len(memory) == 0
