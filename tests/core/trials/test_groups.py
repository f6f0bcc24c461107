"""Models in groups, as of folds: they are compared within these, and pruned in all or in none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.trials import SearchSettings, Trials, TrialState, WorkerQuota, choose, group_of

OFFSETS = (0.0, 3.0, 30.0)


def report(trials: Trials, p: int, fold: int, steps: int, *, grouped: bool = True) -> None:
    trial = trials.at((p, fold), "a")
    trial.params = {"p": p, "fold": fold}
    if grouped:
        trials.put_into_group(trial, *group_of(trial.params, "fold"))
    more = range(trial.step, steps)
    trials.report(trial, [OFFSETS[fold] + p + 0.5**k for k in more], 0.1)
    trial.become(TrialState.WAITS)


def searched(*, grouped: bool, done: int = 2) -> Trials:
    """Two of six candidates are ready in all folds, and the others half-way in the first two."""
    trials = Trials(SearchSettings(steps=40, prune=True))
    for p in range(6):
        for fold in range(3):
            report(trials, p, fold, 40 if p < done else 20 if fold < 2 else 1, grouped=grouped)
            if p < done:
                trials.end((p, fold), "done")
    return trials


def pruned_by(trials: Trials) -> set[tuple[int, int]]:
    return {key for key, *_ in choose(trials, {"a": WorkerQuota(1)}, 0)["a"].pruned}


def test_models_are_compared_with_those_of_their_group_only():
    trials = searched(grouped=True)
    trials.forecast()
    assert pruned_by(trials) == {(p, fold) for p in range(2, 6) for fold in range(3)}
    report(trials, 6, 2, 10)  # the verdict on a candidate needs more than one fold
    assert not pruned_by(trials) & {(6, fold) for fold in range(3)}


def test_without_groups_the_pruned_ones_are_said_to_be_those_of_a_fold():
    trials = searched(grouped=False, done=6)
    for p in range(4):
        report(trials, p, 2, 10, grouped=False)
        trials.alive[p, 2].verdict = "pruned"
        trials.end((p, 2), "done")
        assert trials.lacks_groups() == ("fold" if p > 2 else "")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(1, 6)), max_size=60))
def test_a_candidate_is_pruned_in_all_groups_or_in_none(events):
    trials = searched(grouped=True)
    ends: dict[int, set[str]] = {}
    for p, fold, more in events:
        trials.forecast()
        pruned = pruned_by(trials)
        for key in pruned:
            trials.alive[key].verdict = "pruned"
            trials.end(key, "done")
            ends.setdefault(key[0], set()).add("pruned")
        if (p, fold) in trials.alive:
            report(trials, p, fold, min(trials.alive[p, fold].step + more, 40))
            if trials.alive[p, fold].step == 40:
                trials.end((p, fold), "done")
                ends.setdefault(p, set()).add("done")
    assert all(len(how) == 1 for how in ends.values())


@pytest.mark.parametrize("by", ["fold", lambda params: params["fold"], lambda p: p.get("fold")])
def test_a_candidate_has_the_parameters_that_make_no_group(by):
    params = {"lr": 0.1, "depth": 3, "fold": 4}
    assert group_of(params, by) == ("4", "depth=3, lr=0.1")
