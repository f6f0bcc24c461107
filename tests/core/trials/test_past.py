"""What a search takes from the last one of its kind, and how far it trusts that."""

import math

import numpy as np
import pytest

from dask_slaq.core.trials import (
    PastModel,
    PastSearches,
    SearchSettings,
    Trials,
    TrialState,
    in_order,
)
from dask_slaq.core.trials.past import MOST_MODELS, Past


def search(losses, past=(), steps=6):
    """Return a search whose models 0, 1, ... have reported `losses`, those of each in a row."""
    trials = Trials(SearchSettings(steps=steps), past=past)
    for model, reported in enumerate(losses):
        trial = trials.at(model, "w")
        trial.params = {"model": model, "widths": (8, model)}
        trials.report(trial, reported, 1.0)
        trial.become(TrialState.WAITS)
    trials.forecast()
    return trials


def test_models_have_places_by_their_final_losses():
    trials = search([[3.0], [1.0], [math.nan] * 9, [2.0]])
    for model in range(4):
        trials.end(model, "done")
    places = {model.params["model"]: model.rank for model in trials.ranks()}
    assert places == {1: 0.0, 3: pytest.approx(1 / 3), 0: pytest.approx(2 / 3), 2: 1.0}


def test_models_that_were_best_last_time_come_first_although_they_look_alike():
    past = [PastModel({"model": m, "widths": [8, m]}, p) for m, p in ((0, 1.0), (1, 0.5), (2, 0.0))]
    trials = search([[1.0], [1.0], [1.0]], past)
    scores = [trials.alive[model].score for model in range(3)]
    assert scores == sorted(scores) or scores[2] <= scores[1] <= scores[0]
    assert search([[1.0], [1.0], [1.0]]).alive[0].score == trials.alive[0].score


def test_a_past_that_nothing_here_agrees_with_loses_its_say():
    places, good = np.linspace(0, 1, 40), np.linspace(3.0, 4.0, 40)
    chance = np.random.default_rng(1).permutation(good)
    agrees, unlike, inverse = (
        Past().trust(list(zip(places, losses, strict=True)), [])
        for losses in (good, chance, good[::-1])
    )
    assert agrees == 1.0 > Past().trust([], []) > 0.5 > 0.2 > unlike > inverse == 0.0


def test_parameters_that_are_not_given_here_do_not_count_for_the_order():
    past = [PastModel({"lr": lr, "data": "old"}, place) for lr, place in ((1, 1.0), (2, 0.0))]
    assert in_order(past, [{"lr": 1}, {"lr": 3}, {"lr": 2}]) == [2, 1, 0]
    assert in_order([], [{"lr": 1}, {}]) == [0, 1]


def test_a_new_search_replaces_what_it_had_of_the_last_one():
    searches = PastSearches(most=5)
    searches.add("me", "grid", [PastModel({"lr": i}, 0.0) for i in range(MOST_MODELS)])
    models = searches.add("me", "grid", [PastModel({"lr": 3}, 0.7)])
    assert models[0] == ({"lr": 3}, 0.7) and len(models) == MOST_MODELS
    assert searches.of("me", "grid") == models and searches.of("you", "grid") == []
    for number in range(5):
        searches.add("me", f"other{number}", models[:1])
    assert searches.of("me", "grid") == []
