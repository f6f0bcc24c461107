"""Memory of models: how many may begin beside those that wait, without a cluster."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.search_settings import FEWEST_REPORTS
from dask_slaq.core.trials import (
    MANY_MODELS,
    MEMORY_PART,
    Footprint,
    SearchSettings,
    Trials,
    TrialState,
    WorkerQuota,
    choose,
    choose_everywhere,
)
from dask_slaq.core.trials.footprint import admitted

BYTES = st.floats(0, 1e12)
COUNT = st.integers(0, 50)


def footprint(*begun: float, steps: tuple[float, ...] = ()) -> Footprint:
    model = Footprint()
    for grown in begun:
        model.begin(grown)
    for grown in steps:
        model.step(grown)
    return model


@given(st.lists(BYTES, min_size=1), st.lists(BYTES), COUNT, COUNT, st.floats(-1e12, 1e12))
def test_what_is_admitted_has_room(begun, grown, steps, unseen, left):
    model = footprint(*begun, steps=tuple(grown))
    more = admitted(model, steps, unseen, left)
    size = model.bytes(steps)
    assert size >= max(begun[-32:])
    assert more >= 0
    if more and more < MANY_MODELS:
        assert (more + unseen) * size <= left * (1 + 1e-9)
    assert admitted(model, steps, unseen + 1, left) <= more
    assert admitted(model, steps, unseen, left + 1) >= more


@given(COUNT, BYTES)
def test_nothing_begins_beside_others_before_something_is_known(unseen, left):
    assert admitted(Footprint(), 40, unseen, left) == 0


@given(BYTES, BYTES)
def test_a_guess_admits_one_and_a_measurement_replaces_it(guess, left):
    model = Footprint()
    model.guess(guess)
    assert admitted(model, 1, 0, left) == (guess <= left)
    model.begin(7.0)
    assert model.bytes(1) == 7.0


@given(st.floats(1, 1e9), st.integers(2, 40))
def test_steady_growth_is_expected_to_go_on(per_step, reports):
    model = footprint(0.0, steps=(per_step,) * reports)
    assert model.bytes(40) - 39 * per_step <= 1e-6 * per_step


def test_a_library_that_is_loaded_once_is_no_growth():
    assert footprint(5e6, steps=(0.0, 200e6, 0.0)).bytes(1000) == 5e6


def test_memory_that_is_freed_counts_against_growth_at_most_to_nothing():
    model = footprint(0.0, steps=(10.0, 10.0, -900.0, 10.0, 10.0, 10.0))
    assert model.per_step > 0


@given(
    size=st.integers(1, 90),
    grows=st.integers(0, 20),
    threads=st.integers(1, 4),
    models=st.integers(1, 24),
)
def test_models_of_one_size_never_fill_a_worker_beyond_its_target(size, grows, threads, models):
    """A worker of 100, on which each model takes `size` at first, and as much in `grows` steps."""
    limit, steps = 100.0, 1 + grows
    bytes_of = [size / steps * k for k in range(steps + 1)]  # after each report
    trials, model = Trials(SearchSettings(steps=steps, max_waiting=100)), Footprint()
    unstarted, ended = list(range(models)), 0
    taken: dict[int, int] = {}  # reports of each model that has begun
    for _ in range(50 * models * steps):
        while unstarted and sum(not trials.alive[k].state.waits for k in taken) < threads:
            key = unstarted.pop(0)
            taken[key] = 0
            trials.at(key, "a")
        for key in [key for key in taken if not trials.alive[key].state.waits]:
            taken[key] += 1
            grown = bytes_of[taken[key]] - bytes_of[taken[key] - 1]
            (model.begin if taken[key] == 1 else model.step)(grown)
            trials.report(trials.alive[key], [key + 1 / taken[key]], 0.1)
            memory = sum(bytes_of[k] for k in taken.values())
            # Growth is known from the third report of a model on, and each thread makes a step
            # before the next decision: so many steps may be too much.
            more = max(threads, 2) * size / steps
            assert memory <= max(MEMORY_PART * limit, threads * size) + more + 1e-6
            if taken[key] == steps:
                trials.end(key, "done")
                del taken[key]
                ended += 1
        if ended == models:
            return
        left = MEMORY_PART * limit - sum(bytes_of[k] for k in taken.values())
        left -= model.per_step * sum(trials.steps_left(trials.alive[k]) for k in taken)
        quota = WorkerQuota(threads, 0, left < 0, admitted(model, steps, 0, left))
        found, _ = choose_everywhere(trials, {"a": quota}, len(unstarted), None)
        turns = found["a"]
        for place, key in enumerate(turns.order):
            trial = trials.alive[key]
            if place >= turns.width:
                trial.become(TrialState.WAITS)
            elif trial.state.waits:
                trials.begin_turn(trial)
    raise AssertionError("the search does not end")


@pytest.mark.parametrize(
    ("models", "what", "by_admitted"),
    [
        (4, "width", {0: 4, 1: 3, 2: 2, MANY_MODELS: 0}),  # as many yield as there is memory for
        (1, "explored", {0: 0, 1: 0, 8: 0, 9: 1, MANY_MODELS: 1}),  # they wait where it is ample
    ],
)
def test_turns_go_by_the_models_that_memory_admits(models, what, by_admitted):
    trials = Trials(SearchSettings(steps=40))
    for number in range(models):
        trials.report(trials.at(number, "a"), [1.0] * FEWEST_REPORTS, 0.3)
    for admits, expected in by_admitted.items():
        turns = choose(trials, {"a": WorkerQuota(models, admits=admits)}, unstarted=9)["a"]
        assert getattr(turns, what) == expected
