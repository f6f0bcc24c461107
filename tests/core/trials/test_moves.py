"""Moves of trials between workers, without a cluster."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.search_settings import FEWEST_REPORTS
from dask_slaq.core.trials import (
    Destinations,
    SearchSettings,
    Trials,
    TrialState,
    WorkerQuota,
    choose,
    choose_everywhere,
)
from dask_slaq.core.trials.trial import TURN_REPORTS


def trials_at(*workers: str, steps: int = 40, **settings) -> Trials:
    """Trials 0, 1, 2, ... with states, whose losses end at their number; all wait."""
    trials = Trials(SearchSettings(steps=steps, **settings))
    for number, worker in enumerate(workers):
        trial = trials.at(number, worker)
        trials.report(
            trial, [number + 1 / (k + 1) for k in range(FEWEST_REPORTS)], 0.1 * FEWEST_REPORTS
        )
        trials.can_move(trial, 0, 1.0)
        trial.become(TrialState.WAITS)
        trial.checkpoint.reports = FEWEST_REPORTS
    return trials


def decided(trials, quotas, at=lambda key: (), unstarted=0, **given):
    return choose_everywhere(trials, quotas, unstarted, Destinations(at, **given))


def test_a_trial_on_no_worker_takes_a_free_thread_where_its_state_is():
    trials = trials_at("a", "a")
    assert trials.leave(1)
    quotas = {"a": WorkerQuota(1), "b": WorkerQuota(1), "c": WorkerQuota(1)}
    turns, found = decided(trials, quotas, lambda key: {"c"} if key == 1 else ())
    assert found == [(1, "c")]
    assert (turns["c"].width, turns["a"].width, turns["b"].width) == (0, 1, 1)


@pytest.mark.parametrize("copies", [FEWEST_REPORTS, 0])
def test_one_that_waits_beside_better_ones_is_told_to_leave_for_a_free_thread(copies):
    trials = trials_at("a", "a")
    trials.alive[1].checkpoint.reports = copies
    turns, found = decided(trials, {"a": WorkerQuota(1), "b": WorkerQuota(1)})
    assert (turns["a"].order[:1], turns["a"].leave, found) == ([0], [1], [])


def test_a_better_one_takes_the_thread_of_a_worse_one_once_its_turn_is_over():
    trials = trials_at("a", "b")
    assert trials.leave(0)
    worse = trials.alive[1]
    trials.begin_turn(worse)
    quotas = {"b": WorkerQuota(1)}
    for _ in range(TURN_REPORTS):
        _, found = decided(trials, quotas)
        assert not found
        trials.report(worse, [1.2], 0.1)
    turns, found = decided(trials, quotas)
    assert found == [(0, "b")]
    assert (turns["b"].width, turns["b"].over) == (0, [])


def test_what_is_dear_to_move_goes_where_its_state_is_or_stays():
    trials = trials_at("a", "a")
    for trial in trials.alive.values():
        trials.can_move(trial, 10**9, 1e6)
        assert trial.turn.span > TURN_REPORTS
    turns, found = decided(trials, {"a": WorkerQuota(1), "b": WorkerQuota(1)}, bandwidth=1e6)
    assert (turns["a"].leave, found) == ([], [])


def test_all_leave_a_worker_that_closes_and_none_comes():
    trials = trials_at("a", "a", "b")
    trials.leave(2)
    trials.begin_turn(trials.alive[0])
    closing = WorkerQuota(1, leaves=True, closing=True)
    turns, found = decided(trials, {"a": closing})
    assert (sorted(turns["a"].leave), found) == ([0, 1], [])


def test_a_trial_goes_on_from_an_earlier_state_with_its_curve():
    trials = trials_at("a")
    trial = trials.alive[0]
    trials.report(trial, [0.2, 0.1], 0.2)
    assert trials.leave(0)
    assert trials.at(0, "b") is trial
    trials.arrive(trial, FEWEST_REPORTS)
    assert trials.report(trial, [0.2, 0.1, 0.05], 0.3) == [0, 0, 1]
    assert (trial.reports, trial.step, trial.worker, trial.losses.latest) == (
        FEWEST_REPORTS + 3,
        FEWEST_REPORTS + 3,
        "b",
        0.05,
    )


def test_one_that_is_over_its_time_is_given_up():
    trials = trials_at("a", "a", trial_timeout=0.5)
    trials.report(trials.alive[1], [1.1] * 3, 0.3)
    assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].pruned == [(1, None, 0)]
    with pytest.raises(InvalidSetting, match="trial_timeout"):
        SearchSettings(trial_timeout=0)


WORKERS = "abc"


@given(
    places=st.lists(st.tuples(st.sampled_from(WORKERS), st.sampled_from("wta")), max_size=12),
    threads=st.tuples(*[st.integers(0, 3)] * 3),
    guests=st.tuples(*[st.integers(0, 2)] * 3),
    unstarted=st.integers(0, 3),
)
def test_no_more_train_than_there_are_threads_and_none_idles(places, threads, guests, unstarted):
    trials = trials_at(*[worker for worker, _ in places])
    used = dict.fromkeys(WORKERS, 0)
    for number, (worker, what) in enumerate(places):
        if what == "a":
            trials.leave(number)
        elif what == "t" and used[worker] < threads[WORKERS.index(worker)]:
            trials.begin_turn(trials.alive[number])
            used[worker] += 1
    quotas = {
        w: WorkerQuota(n, guests=min(g, n))
        for w, n, g in zip(WORKERS, threads, guests, strict=True)
    }
    before = copy.deepcopy({w: t.width for w, t in choose(trials, quotas, unstarted).items()})
    turns, found = decided(trials, quotas, unstarted=unstarted)
    assert len({key for key, _ in found}) == len(found)
    for worker, turn in turns.items():
        coming = sum(target == worker for _, target in found)
        assert turn.width == before[worker] - coming >= 0
        staying = len(turn.order[: turn.width]) + coming + quotas[worker].guests
        assert staying <= max(quotas[worker].threads, quotas[worker].guests)
    rest = [
        k
        for k, t in trials.alive.items()
        if t.state.migrates and k not in {key for key, _ in found}
    ]
    # A free thread is taken, or kept for a better one that is told to leave.
    free = sum(max(turn.width - len(turn.order), 0) for turn in turns.values())
    assert not rest or free <= sum(len(turn.leave) for turn in turns.values())


@pytest.mark.parametrize(("setup", "moves_away"), [(0.0, True), (10.0, False)])
def test_a_model_that_loads_data_for_long_is_dear_to_move(setup, moves_away):
    trials = trials_at()
    for number in range(2):
        trial = trials.at(number, "a")
        trials.report(trial, [number + 1.0], setup + 0.1)
        trials.report(
            trial, [number + 0.1 * (5 - k) for k in range(FEWEST_REPORTS)], 0.1 * FEWEST_REPORTS
        )
        trials.can_move(trial, 0, 1.0)
        trial.become(TrialState.WAITS)
        trial.checkpoint.reports = FEWEST_REPORTS
        assert trial.setup == pytest.approx(setup)
    turns, _ = decided(trials, {"a": WorkerQuota(1), "b": WorkerQuota(1)})
    assert bool(turns["a"].leave) is moves_away
