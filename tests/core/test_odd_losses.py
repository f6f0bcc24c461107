"""Losses as people have them: what is forecast of them, who trains, and who is pruned."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from loss_curves import (
    KINDS,
    all_nan,
    fall,
    flat_and_noise,
    huge_first,
    near_overflow,
    plateau_then_cliff,
    some_nan,
)

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import LossPredictor, at_horizon
from dask_slaq.core.jobs.reports import LOST_REPORTS, Iterations, is_usable
from dask_slaq.core.trials import SearchSettings, Trials, WorkerQuota, choose

SEEDS = st.integers(0, 2**32 - 1)
#: Examples of whole trainings: 8, and 66 in the nightly run.
FEW = settings.default.max_examples // 3
WORKERS = {"tcp://a": 1, "tcp://b": 1}


def made(kind, seed: int, n: int):
    return kind(np.random.default_rng(seed), n)


def predicted(losses, horizon: float = 50.0) -> dict[str, float]:
    """What is forecast after each loss was reported and fitted."""
    predictor = LossPredictor()
    predictor.add("job")
    for loss in losses:
        predictor.report("job", float(loss))
        predictor.fit()
    found, band, at = predictor.forecast(["job"]), predictor.band(["job"]), np.array([horizon])
    return {
        "level": found.level[0],
        "remaining": found.remaining[0],
        "start": found.start[0],
        "ahead": found.level[0] - at_horizon(at, found.reduction)[0],
        "low": at_horizon(at, band[0])[0],
        "high": at_horizon(at, band[1])[0],
    }


def train_in_turns(jobs: dict[str, list[float]], policy: str = "max-total") -> Engine:
    """Jobs that report one after the other, decided upon after each round."""
    engine = Engine(policy)
    for job in jobs:
        engine.add_job(job, 0.0)
    for k in range(max(map(len, jobs.values()))):
        for job, losses in jobs.items():
            if k < len(losses):
                engine.observe_task(job, 1.0, 2)
                engine.report(job, losses[k], float(k))
        engine.reallocate(WORKERS, float(k))
    return engine


def search(curves, *, rhythm=None, steps_of=None, **given) -> Trials:
    """A search of one thread per model whose models report in turns, judged after each round.

    `rhythm` are the epochs from one report of each model to the next, and with `steps_of` the steps
    that it names. What the search gives up ends.
    """
    trials = Trials(SearchSettings(**given))
    rhythm = rhythm or [1] * len(curves)
    for epoch in range(1, max(map(len, curves)) + 1):
        for key, curve in enumerate(curves):
            trial = trials.at(key, "a") if epoch == 1 else trials.alive.get(key)
            if trial is None or epoch % rhythm[key]:
                continue
            steps = () if steps_of is None else (steps_of(epoch),)
            trials.report(trial, [curve[epoch - 1]], 0.1, steps)
            if epoch + rhythm[key] > len(curve):
                trials.end(key, "done")
        turns = choose(trials, {"a": WorkerQuota(len(curves))}, 0)["a"]
        for key, *_ in turns.pruned:
            trials.alive[key].verdict = "pruned"
            trials.end(key, "done")
    return trials


def outcome(trials: Trials) -> dict[int, str]:
    return {trial.key: trial.outcome for trial in trials}


# Any kind


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=FEW // 2)
@given(seed=SEEDS, prune=st.booleans(), steps=st.sampled_from([None, 40]))
def test_any_curves_are_ranked_and_shared_without_an_error(kind, seed, prune, steps):
    curves = [made(KINDS[kind], seed + k, 40).tolist() for k in range(3)]
    ordinary = made(fall, seed, 40).tolist()
    engine = train_in_turns({**{str(k): c for k, c in enumerate(curves)}, "good": ordinary})
    assert [job.iteration for job in engine.jobs.values()] == [40] * 4
    shares = [grant.share for grant in engine.grants.values()]
    assert all(0 <= share <= 2 for share in shares) and sum(shares) <= 2 + 1e-9
    trials = search([*curves, ordinary], prune=prune, steps=steps)
    assert set(outcome(trials).values()) <= {"done", "pruned"}
    for trial in trials.as_dicts():
        assert trial["low"] <= trial["predicted"] <= trial["high"] or math.isnan(trial["low"])


# A huge first loss


@given(SEEDS)
def test_a_huge_first_loss_is_not_the_range(seed):
    curve = made(huge_first, seed, 60)
    huge = int((curve > 100).sum())
    found = predicted(curve[: 10 + huge - 1])
    later = curve[huge : 10 + huge - 1]
    # What the rest by itself is forecast to fall, and at most half of its range beyond it.
    ordinary = predicted(later)
    span = later.max() - later.min()
    assert found["start"] <= later.max()
    assert found["remaining"] < ordinary["remaining"] + 0.5 * span


def test_a_model_with_a_huge_first_loss_is_ranked_by_what_followed():
    k = np.arange(12)
    bad, good = [1e4, *(0.9 + 0.4 / (1 + k))], [1.2, *(0.3 + 0.8 / (1 + k))]
    trials = search([bad, good, good], prune=False, steps=40)
    worst, *best = (trial for trial in trials)
    assert (
        worst.forecast.final > max(trial.forecast.final for trial in best)
        and worst.forecast.final > 0.6
    )
    trials = search([[*bad, *[0.9] * 30], [*good, *[0.3] * 8]], prune=True, steps=43)
    assert outcome(trials) == {0: "pruned", 1: "done"}


# Powers of ten, and zero


def test_a_loss_over_many_powers_of_ten_has_its_range_in_logs():
    powers = np.concatenate([np.linspace(26, 8, 6, endpoint=False), np.linspace(8, -4, 124)])
    usual = 0.3 + 2 / np.arange(1, 131)
    for n in (6, 20, 40, 80):  # of 130: ten thousand times less than at first is not the end
        engine = train_in_turns({"powers": 10 ** powers[:n], "usual": usual[:n]})
        assert engine.grants["powers"].normalized > 0.02
        assert engine.grants["powers"].share >= 0.5 * engine.grants["usual"].share
    found = predicted(10 ** powers[:80])
    assert np.log10(found["ahead"]) == pytest.approx(powers[129], abs=1.0)
    assert 0 < found["low"] < found["ahead"] < found["high"] < 10 ** powers[80]
    trials = Trials(SearchSettings(goal="all"))
    for key, losses in enumerate([10 ** powers[:40], 1 + 0.5 ** np.arange(40)]):
        trials.report(trials.at(key, "w"), losses, 1.0)
    trials.forecast()
    assert trials.alive[0].score < trials.alive[1].score


def test_zero_bounds_no_model_once_another_is_below():
    falling = [10800 - 1200.0 * k for k in range(8)]
    trials = Trials(SearchSettings(steps=40))
    for key in "ab":
        trials.report(trials.at(key, "w"), falling, 1.0)
        choose(trials, {"w": WorkerQuota(2)}, 0)
        assert (trials.alive[key].forecast.final < 0) == (key == "b")
        trials.report(trials.at("below", "w"), [-1.0], 1.0)
        choose(trials, {"w": WorkerQuota(3)}, 0)
        assert trials.alive[key].forecast.final < 0
    engine = Engine()
    for key in ("falls", "below"):
        engine.add_job(key, 0.0, search="s")
    for k, loss in enumerate(falling):
        engine.report("falls", loss, float(k))
        engine.reallocate(WORKERS, float(k))
    engine.report("below", -1.0, 8.0)
    engine.reallocate(WORKERS, 8.0)
    assert engine.forecaster.forecast(["falls"]).remaining > falling[-1]


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_the_band_of_losses_that_were_never_negative_is_above_zero(shift):
    noise = np.random.default_rng(1).normal(0, 0.4, 30)
    ours = LossPredictor()
    ours.add("job")
    for loss in abs(1 / np.arange(1, 31) + noise) - shift:
        ours.report("job", loss)
    ours.fit()
    lower, _ = ours.band(["job"])
    assert (lower.min() >= 0) == (shift == 0)


def test_the_band_of_a_loss_that_rises_is_as_wide_as_its_moves():
    rising = 2.3 + 0.29 * np.arange(12)  # smooth, as of a learning rate that warms up
    for n in range(4, 12):
        found = predicted(rising[:n], horizon=1.0)
        assert found["high"] - found["low"] > 0.29 and found["high"] > rising[n] - 0.01


# Dead networks


def test_noise_alone_converges():
    predictor, jobs = LossPredictor(), [str(seed) for seed in range(60)]
    noise = 2.303 + 0.01 * np.random.default_rng(0).standard_normal((101, len(jobs)))
    for job in jobs:
        predictor.add(job)
    for k, losses in enumerate(noise.tolist()):
        if k in (50, 100):
            assert (predictor.forecast(jobs).remaining < 0.01 * 2 * 0.01).mean() > 0.85
        for job, loss in zip(jobs, losses, strict=True):
            predictor.report(job, loss)
        predictor.fit()


def test_dead_networks_get_less_than_their_share():
    # One in twenty is taken for one that falls, because noise looks like a fall now and then.
    shares = [share_of_dead_network(seed) for seed in range(5)]
    assert np.mean(shares) < 0.3 and np.median(shares) < 0.1  # of two threads


def share_of_dead_network(seed):
    """Return the mean share of a job that shows only noise, beside one that gains."""
    rng = np.random.default_rng(seed)
    good = 0.3 + 2 * 0.97 ** np.arange(100)
    engine = Engine("max-total")
    for job in ("dead", "good"):
        engine.add_job(job, 0.0)
    shares = []
    for k, loss in enumerate(flat_and_noise(rng, 100).tolist()):
        for job, value in (("dead", loss), ("good", good[k] + 0.01 * rng.standard_normal())):
            engine.observe_task(job, 1.0, 2)
            engine.report(job, value, float(k))
        engine.reallocate(WORKERS, float(k))
        shares.append(engine.grants["dead"].share)
    return np.mean(shares[40:])


def test_a_slow_fall_below_the_noise_is_not_dead():
    rng = np.random.default_rng(0)
    for _ in range(8):
        slow = 2.3 - 0.0005 * np.arange(100) + 0.01 * rng.standard_normal(100)
        assert predicted(slow)["remaining"] > 0.1 * 0.01


# Plateaus


@given(SEEDS, st.integers(4, 60))
def test_the_band_of_a_plateau_admits_that_it_knows_nothing(seed, n):
    level = made(plateau_then_cliff, seed, 20)[0]
    found = predicted([level] * n, horizon=n)
    assert found["high"] - found["low"] >= max(abs(level), 1.0)


@given(SEEDS)
@settings(max_examples=FEW)
def test_no_plateau_is_hopeless_before_half_of_the_steps(seed):
    # As a mountain car: -200 until it finds the hill. The best models may begin late.
    rng = np.random.default_rng(seed)
    curves = [plateau_then_cliff(rng, 60) for _ in range(4)]
    curves = [(200 + curve - curve[0]).tolist() for curve in curves]
    good = (150 + rng.uniform(20, 80) * rng.uniform(0.7, 0.95) ** np.arange(60)).tolist()
    good = good[:20]  # it is ready before the others begin
    found = outcome(search([*curves, good], prune=True, steps=60))
    assert [found[k] for k in range(4)] == ["done"] * 4
    never = search([[200.0] * 60, good], prune=True, steps=60)
    dead = next(trial for trial in never if trial.key == 0)
    assert dead.outcome == "pruned" and dead.step >= 30


@pytest.mark.parametrize(("level", "stays", "steps"), [(2.303, 10, 50), (0.693, 28, 100)])
def test_a_noisy_plateau_has_not_changed(level, stays, steps):
    # Networks at chance level. Their noise is estimated, so seeds matter.
    rng = np.random.default_rng(0)
    ages = np.maximum(np.arange(steps) - stays, 0)
    best = (level - 0.01) * 0.8**ages + 0.003 * rng.normal(size=steps) + 0.01
    good = (0.3 * level + level * 0.7 ** np.arange(steps // 5)).tolist()  # ready before it begins
    assert outcome(search([best, good], prune=True, steps=steps)) == {0: "done", 1: "done"}
    assert outcome(search([best, good], prune="bold", steps=steps))[0] == "pruned"


def test_noisy_rewards_are_not_hopeless_while_noise_hides_what_they_learn():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(2, 50)) * 20
    late = 20 + 180 / (1 + np.exp(18 - np.arange(50)))  # it has learned after 20 of 50 reports
    rewards = [late + noise[0], (150 + noise[1])[:8]]
    found = search([r.tolist() for r in rewards], prune=True, steps=50, maximize=True)
    assert outcome(found) == {0: "done", 1: "done"}


# Lengths and rhythms


@given(SEEDS)
@settings(max_examples=FEW)
def test_the_first_short_model_that_ends_does_not_end_the_longer_ones(seed):
    rng = np.random.default_rng(seed)
    # The best falls slowest, as with a small learning rate.
    best = 0.1 + 2 * rng.uniform(0.88, 0.93) ** np.arange(40)
    longer = [rng.uniform(0.6, 1) + 2 * rng.uniform(0.6, 0.9) ** np.arange(40) for _ in range(5)]
    short = 0.5 + 2 * 0.5 ** np.arange(10)
    found = outcome(search([best, *longer, short], prune=True))
    assert found[0] == "done"
    # Half of them report every fifth epoch, so they end after eight reports.
    found = outcome(search([best, *longer, *longer], rhythm=[1] * 6 + [5] * 5, prune=True))
    assert found[0] == "done"


@given(SEEDS, st.integers(1, 10))
@settings(max_examples=FEW)
def test_a_complete_model_is_not_pruned(seed, every):
    rng = np.random.default_rng(seed)
    good = 0.1 + 0.5 * 0.8 ** np.arange(40)
    trials = Trials(SearchSettings(steps=40, prune=True))
    best, bad = trials.at("best", "a"), trials.at("bad", "a")
    trials.report(best, good.tolist(), 4.0)
    for step in range(every, 41, every):
        trials.report(bad, [2.0 + 0.01 * rng.random()], 0.1, [step])
        pruned = choose(trials, {"a": WorkerQuota(2)}, 0)["a"].pruned
        if step + every > 40:
            assert pruned == []


@given(SEEDS, st.integers(2, 10), st.booleans())
@settings(max_examples=FEW)
def test_named_steps_are_what_counts(seed, every, from_zero):
    curve = made(fall, seed, 60)
    count = Iterations()
    sparse = Trials(SearchSettings(steps=60))
    one = sparse.at(0, "a")
    for epoch in range(0 if from_zero else every, 61, every):
        done = count.count(epoch)
        sparse.report(one, [curve[min(epoch, 59)]], 0.1 * every, [done])
    assert one.step == (60 // every * every) + from_zero and one.losses.stride == every
    assert sparse.seconds_left(one) <= one.times.computed / one.step * every
    assert sparse.as_dicts()[0]["iteration"] == one.step


def test_reports_of_every_tenth_epoch_are_forecast_by_their_steps():
    epochs = np.arange(5, 41, 5)
    curve = 0.43 + 1.2 * 0.96 ** np.arange(41)
    named, counted = (Trials(SearchSettings(steps=40)) for _ in range(2))
    for trials, steps in ((named, epochs.tolist()), (counted, [None] * 8)):
        trial = trials.at(0, "a")
        for loss, step in zip(curve[epochs].tolist()[:6], steps, strict=False):
            trials.report(trial, [loss], 0.3, [step])
            trials.forecast()
    assert named.alive[0].forecast.final == pytest.approx(curve[40], abs=0.05)
    assert counted.alive[0].forecast.final < curve[40] - 0.1


def test_a_job_that_names_its_steps_ends_at_its_last_one():
    engine = Engine()
    for job, every in (("each", 1), ("tenth", 10)):
        engine.add_job(job, 0.0, max_iter=100)
        for step in range(every, 51, every):
            engine.observe_task(job, 1.0 * every, 1)
            engine.report(job, 0.98**step, float(step), step)
    engine.reallocate(WORKERS, 50.0)
    jobs, rows = engine.jobs, engine.jobs.order().rows
    assert [jobs[name].iteration for name in ("each", "tenth")] == [50, 50]
    assert jobs.ahead(rows).tolist() == [50.0, 5.0]
    ends = [engine.end_of(name, 50.0) for name in ("each", "tenth")]
    assert ends[0]["fair"] == pytest.approx(ends[1]["fair"], rel=0.05)


@given(st.lists(st.none() | st.integers(0, 50), max_size=30))
def test_iterations_increase_whatever_the_steps(steps):
    count, last = Iterations(), 0
    for step in steps:
        now = count.count(step)
        assert now > last and count.gap == now - last
        last = now


# Nan and infinite


@given(SEEDS, st.integers(1, 60))
@settings(max_examples=FEW)
def test_iterations_without_a_usable_loss_count(seed, n):
    engine = train_in_turns({"job": made(all_nan, seed, n).tolist(), "other": [1.0, 0.5]})
    job = engine.jobs["job"]
    assert job.iteration == job.missed == n and math.isnan(job.loss)
    why = engine.grants["job"].why
    assert why.startswith("all its losses are nan or infinite")
    lost = engine.grants["job"].predicted == 0.0, engine.grants["job"].normalized == 1.0
    assert n < LOST_REPORTS or all(lost)


@given(SEEDS)
@settings(max_examples=FEW)
def test_dropped_losses_change_no_forecast(seed):
    curve = made(some_nan, seed, 30)
    kept = curve[np.isfinite(curve)]
    with_gaps, without = (Trials(SearchSettings()) for _ in range(2))
    for trials, losses in ((with_gaps, curve), (without, kept)):
        trial = trials.at(0, "a")
        trials.report(trial, losses.tolist(), 3.0)
        trials.forecast()
    one, other = with_gaps.alive[0], without.alive[0]
    assert one.step == 30 and one.losses.latest == other.losses.latest and not one.diverges
    assert one.losses.count == other.reports


@given(SEEDS)
@settings(max_examples=FEW)
def test_losses_near_overflow_count_as_infinite(seed):
    curve = made(near_overflow, seed, 30).tolist()
    engine = train_in_turns({"job": curve})
    usable = [loss for loss in curve if is_usable(loss)]
    assert engine.jobs["job"].iteration == 30
    assert engine.jobs["job"].loss == usable[-1]
    trials = Trials(SearchSettings())
    assert trials.report(trials.at(0, "a"), curve, 1.0) == [1] * 30
    assert trials.best == min(usable)


def test_a_job_whose_losses_become_nan_diverges():
    losses = [*(0.9**k for k in range(20)), *[math.nan] * LOST_REPORTS]
    engine = train_in_turns({"job": losses, "other": losses[:20]})
    assert "its last 8 losses are nan or infinite: it diverges" in engine.grants["job"].why
    assert engine.grants["job"].predicted == 0.0
    engine.report("job", 0.1, 30.0)
    engine.reallocate(WORKERS, 30.0)
    assert "diverges" not in engine.grants["job"].why


def test_the_best_model_is_not_given_up_for_some_steps_of_nan():
    trials = Trials(SearchSettings(steps=40, prune=True))
    curves = {k: 0.2 + 1 / np.arange(1, 41) + 0.01 * k for k in range(1, 6)}
    curves[0] = 0.5 / np.arange(1, 41)
    curves[0][15:24] = np.nan
    for step in range(40):
        for key, losses in curves.items():
            trials.report(trials.at(key, "w"), [losses[step]], 1.0)
        for trial in trials.alive.values():
            trials.begin_turn(trial)
        trials.forecast()
        assert not trials.gives_up(trials.alive[0]), f"at step {step}"
