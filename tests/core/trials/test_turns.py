"""Turns of trials: who trains on each worker, without a cluster."""

import math

import pytest
from driving import counted_calls
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.reports import LOST_REPORTS
from dask_slaq.core.search_settings import FEWEST_REPORTS, PATIENCE_REPORTS
from dask_slaq.core.trials import (
    Destinations,
    SearchSettings,
    TrialAccount,
    Trials,
    TrialState,
    WorkerQuota,
    choose,
    choose_everywhere,
)
from dask_slaq.core.trials.priors import Early
from dask_slaq.core.trials.pruning import Peers
from dask_slaq.core.trials.trial import BLOCKED_SECONDS, TURN_REPORTS

#: Reports of models that are long compared with others.
MANY = 10


def trials_at(*workers: str, reports: int = FEWEST_REPORTS, **settings) -> Trials:
    """Trials 0, 1, 2, ... whose losses end at their number, on these workers."""
    trials = Trials(SearchSettings(**{"steps": 40, **settings}))
    for number, worker in enumerate(workers):
        trial = trials.at(number, worker)
        trials.report(trial, [number + 1 / (k + 1) for k in range(reports)], 0.1 * reports)
        trial.become(TrialState.WAITS)
    return trials


def make_ready(trials: Trials, *losses: float) -> None:
    """Let further trials begin and end with these losses."""
    for loss in losses:
        trials.report(trials.at(("ready", loss), "a"), [loss], 0.1)
        trials.end(("ready", loss), "done")


def pruned_by(trials: Trials) -> list:
    return [key for key, *_ in choose(trials, {"a": WorkerQuota(1)}, 0)["a"].pruned]


def train(trials: Trials, *numbers: int) -> None:
    for number in numbers:
        trials.alive[number].become(TrialState.TRAINS)


def allowed(turns) -> list:
    return turns.order[: turns.width]


def test_each_worker_trains_its_best():
    trials = trials_at(*"abab")
    found = choose(trials, {"a": WorkerQuota(1), "b": WorkerQuota(1)}, unstarted=0)
    assert (allowed(found["a"]), allowed(found["b"])) == ([0], [1])
    assert choose(trials, {"a": WorkerQuota(2)}, unstarted=0)["a"].order == [0, 2]


def test_a_trial_keeps_its_thread_for_a_turn():
    trials = trials_at(*"aa")
    worse = trials.alive[1]
    worse.become(TrialState.TRAINS)
    worse.turn.begun_at = worse.reports
    for more in range(TURN_REPORTS):
        assert allowed(choose(trials, {"a": WorkerQuota(1)}, 0)["a"]) == [1], more
        trials.report(worse, [1.2], 0.1)
    assert allowed(choose(trials, {"a": WorkerQuota(1)}, 0)["a"]) == [0]


def test_once_a_model_is_ready_some_turns_go_to_the_least_advanced():
    trials = trials_at(*"aaa")
    trials.report(trials.alive[1], [1.1] * 5, 0.5)
    assert allowed(choose(trials, {"a": WorkerQuota(1)}, 0)["a"]) == [0]
    trials.at("other", "a")
    trials.end("other", "done")
    served = []
    for _ in range(9):
        (chosen,) = allowed(choose(trials, {"a": WorkerQuota(1)}, 0)["a"])
        served.append(chosen)
        trial = trials.alive[chosen]
        trials.begin_turn(trial)
        trials.report(
            trial, [chosen + 0.3 * 0.9**k for k in range(FEWEST_REPORTS)], 0.1 * FEWEST_REPORTS
        )
        trial.become(TrialState.WAITS)
    assert served.count(0) == 8 and served[8] == 2


@pytest.mark.parametrize(
    ("quota", "unstarted", "expected"),
    [
        (WorkerQuota(1, begun=1), 0, (0, 1)),
        (WorkerQuota(1), 3, (0, 1)),
        (WorkerQuota(2, begun=1), 0, (1, 0)),
    ],
)
def test_new_models_are_explored_first(quota, unstarted, expected):
    trials = trials_at(*"aa")
    train(trials, 0)
    turns = choose(trials, {"a": quota}, unstarted)["a"]
    assert (turns.width, turns.explored) == expected


@pytest.mark.parametrize(("unstarted", "width", "explored"), [(3, 2, 0), (4, 0, 2)])
def test_nothing_waits_where_there_are_few_models_per_thread(unstarted, width, explored):
    trials = trials_at(*"aa")
    train(trials, 0, 1)
    turns = choose(trials, {"a": WorkerQuota(2)}, unstarted)["a"]
    assert (turns.width, turns.explored) == (width, explored)


@pytest.mark.parametrize(("begun", "unstarted", "width"), [(1, 5, 1), (0, 0, 0)])
def test_new_models_begin_where_the_work_will_end_first(begun, unstarted, width):
    """But one that is there does not wait for a worker with less work."""
    trials = trials_at(*"aaab")
    train(trials, 0, 3)
    quotas = {"a": WorkerQuota(1, begun=1), "b": WorkerQuota(1, begun=begun)}
    found = choose(trials, quotas, unstarted, fewest_per_thread=2)
    assert found["a"].width == width
    if unstarted:
        assert found["b"].width == 0


@pytest.mark.parametrize("quota", [WorkerQuota(1, 1, crowded=True), WorkerQuota(1, 1)])
def test_nothing_more_waits_than_may(quota):
    trials = trials_at(*"aa", max_waiting=100 if quota.crowded else 1)
    train(trials, 0)
    turns = choose(trials, {"a": quota}, unstarted=3)["a"]
    assert (turns.width, turns.explored) == (1, 0)


def test_trials_may_swap_while_nothing_more_may_wait():
    trials = trials_at(*"aa", max_waiting=1)
    train(trials, 1)
    assert allowed(choose(trials, {"a": WorkerQuota(1)}, unstarted=3)["a"]) == [0]
    # The thread that a swap frees would go to a task that is there, and one more would wait.
    assert allowed(choose(trials, {"a": WorkerQuota(1, 1)}, unstarted=3)["a"]) == [1]


def test_a_crowded_worker_ends_what_is_nearest_to_its_end():
    trials = trials_at(*"aa")
    trials.report(trials.alive[1], [1.1] * 20, 2.0)
    assert choose(trials, {"a": WorkerQuota(1, crowded=True)}, 0)["a"].order == [1, 0]


def test_of_two_that_train_the_one_that_was_told_first_waits():
    trials = trials_at(*"aa")
    train(trials, 0, 1)
    for number in (0, 1, 1, 0):  # each is nearer to its end in turn, by the order of messages
        trials.report(trials.alive[number], [1.0, 0.9], 0.2)
        assert allowed(choose(trials, {"a": WorkerQuota(1, 1, admits=0)}, unstarted=3)["a"]) == [0]


def test_without_threads_all_wait():
    trials = trials_at(*"aa", reports=1)
    turns = choose(trials, {"a": WorkerQuota(0)}, unstarted=3)["a"]
    assert (sorted(turns.order), turns.width) == ([0, 1], 0)


def test_a_model_that_diverges_is_last_and_hopeless():
    trials = trials_at(*"aaa", prune=True)
    for number, pruned in ((0, []), (2, [(2, None, 0)])):  # the first has the lowest loss so far
        trials.report(trials.alive[number], [math.nan] * max(PATIENCE_REPORTS, LOST_REPORTS), 0.4)
        turns = choose(trials, {"a": WorkerQuota(1)}, 0)["a"]
        assert turns.order[-1] == number and turns.pruned == pruned
        trials.report(trials.alive[number], [0.1], 0.1)
        assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].pruned == []


def test_pruning_needs_models_that_are_ready_and_better():
    trials = trials_at(*"aaaaaaa", reports=MANY, prune=True)
    assert pruned_by(trials) == []  # nobody knows where the lowest loss reported will end
    make_ready(trials, 0.9)
    assert pruned_by(trials) == []  # one of eight models
    make_ready(trials, 0.8)
    assert pruned_by(trials) == [2, 3, 4, 5, 6]  # 1 may still fall that far
    trials = trials_at(*"aaaaaaa", reports=MANY)
    make_ready(trials, 0.8, 0.9)
    assert pruned_by(trials) == []


def test_where_all_overfit_the_lowest_loss_reported_prunes_none():
    # All have risen again, out of reach of the lowest loss that was reported.
    trials = Trials(SearchSettings(steps=100, prune=True))
    for number in range(3):
        rise = [0.1 * number + (1 - 0.2 * k if k < 5 else 0.03 * k) for k in range(30)]
        trials.report(trials.at(number, "a"), rise[number:], 3.0)
    make_ready(trials, 1.3)  # which has overfit, too
    assert 0 not in pruned_by(trials)
    make_ready(trials, 0.5)
    assert 0 in pruned_by(trials)


def test_a_model_that_falls_slowly_and_steadily_is_not_pruned():
    # As the best network on Friedman's data: it falls by one hundredth a step, later as well.
    slow = [0.437, 0.32, 0.294, 0.28, 0.268, 0.257, 0.246, 0.235, 0.223, 0.212]
    trials = Trials(SearchSettings(steps=40, prune=True))
    for key, curve in (("slow", slow), ("ends", [0.3 + k**-2 for k in range(1, 11)])):
        trials.report(trials.at(key, "a"), curve, 1.0)
    for number in range(3):  # further ones with lower losses at this step
        trials.report(trials.at(number, "a"), [0.2 - 0.001 * number] * len(slow), 1.0)
    make_ready(trials, 0.1, 0.11, 0.12)
    pruned = pruned_by(trials)
    assert "slow" not in pruned and "ends" in pruned


def test_the_lowest_losses_at_a_step_are_not_hopeless():
    trials = Trials(SearchSettings(steps=100, prune=True))
    for number in range(20):
        curve = [2.0, *(1 + 0.001 * number + 0.5**k for k in range(29))]
        trials.report(trials.at(number, "a"), curve, 3.0)
    make_ready(trials, 0.1, 0.2, 0.3)
    assert pruned_by(trials) == list(range(2, 20))


@pytest.mark.parametrize(("steps", "pruned"), [(19, []), (21, [1])])
def test_a_loss_that_no_longer_changes_is_given_half_of_the_steps(steps, pruned):
    trials = trials_at(*"aa", reports=PATIENCE_REPORTS, prune=True)
    trials.report(trials.alive[1], [1.1] * (steps - PATIENCE_REPORTS), 0.5)
    make_ready(trials, 0.5)
    assert pruned_by(trials) == pruned


@pytest.mark.parametrize(
    ("prune", "steps", "patience"),
    [(True, None, 5), (True, 40, 5), (True, 100, 13), ("bold", 100, 5), ({"patience": 9}, 100, 9)],
)
def test_patience_grows_with_the_steps(prune, steps, patience):
    assert SearchSettings(prune=prune, steps=steps).pruning.reports(steps) == patience


@pytest.mark.parametrize("given", [{"slack": 5.0}, {"patience": MANY + 1}, {"noise": 1e3}])
def test_pruning_has_slack_and_patience(given):
    trials = trials_at(*"aaa", reports=MANY, prune=given)
    make_ready(trials, 0.9)
    assert pruned_by(trials) == []


@pytest.mark.parametrize(
    "wrong",
    [1, "yes", {"slack": -1}, {"patience": 0}, {"slack": True}, {"noise": -1}, {"reach": 1}, [0.1]],
)
def test_wrong_pruning_is_refused(wrong):
    with pytest.raises(InvalidSetting):
        SearchSettings(prune=wrong)


def test_scores_are_turned_round():
    trials = Trials(SearchSettings(steps=40, maximize=True))
    for number in range(3):
        trials.report(trials.at(number, "a"), [number - 1 / (k + 1) for k in range(8)], 0.8)
    assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].order == [2, 1, 0]
    for trial in trials.as_dicts():
        assert trial["low"] <= trial["predicted"] <= trial["high"]
        assert trial["loss"] == trial["key"] - 1 / 8


@pytest.mark.parametrize(
    ("models", "order"),
    [
        ({"flat": (0.1, 1.0, 6, 0.1), "fast": (5, 0.7, 6, 0.1)}, ["fast", "flat"]),
        ({"slow": (5, 0.98, 6, 0.1), "fast": (1e-4, 0.7, 6, 0.1)}, ["fast", "slow"]),
        (
            {"slow": (5, 0.95, 12, 0.4), "fast": (5, 0.95, 12, 0.1), "short": (5, 0.95, 6, 0.2)},
            ["fast", "short", "slow"],
        ),
    ],
    ids=["to come", "of small losses as of large ones", "per second"],
)
def test_all_as_a_goal_ranks_by_the_fall(models, order):
    trials = Trials(SearchSettings(steps=40, goal="all"))
    for key, (first, rate, reports, each) in models.items():
        losses = [first * rate**k for k in range(reports)]
        for part in (losses[: reports // 2], losses[reports // 2 :]):
            trials.report(trials.at(key, "a"), part, each * len(part))
    assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].order == order


def test_a_model_began_before_it_computed_its_first_report():
    trials = Trials(SearchSettings(steps=40), clock=lambda: 100.0)
    trial = trials.at("one", "a")
    assert trial.times.began == 100.0
    assert trial.name == "1"
    for seconds in (2.5, 1.5):
        trials.report(trial, [1.0], seconds)
        assert trial.times.began == 97.5


def test_a_task_that_runs_elsewhere_begins_anew_and_one_task_may_train_several():
    trials = trials_at("a")
    again = trials.at(0, "b")
    assert (again.reports, len(trials.ended)) == (0, 0)
    trials.report(trials.at(0, "b", "first"), [1.0], 0.1)
    assert trials.at(0, "b", "second").reports == 0
    assert [trial.number for trial in trials.ended] == [None, "first"]
    assert len({trial.name for trial in trials}) == len(list(trials))


def test_account_gives_what_is_due():
    account, used = TrialAccount(), []
    for _ in range(300):
        account.update(1.4, used[-1] if used else 0, 0.05)
        used.append(account.due(1.4))
    assert set(used) == {1, 2}
    assert sum(used) / len(used) == pytest.approx(1.4, abs=0.1)


def test_a_model_whose_result_was_lost_is_ranked_by_its_known_loss():
    trials = trials_at(*"aaa")
    trials.report(trials.alive[0], [-5.0], 0.1)
    trials.end(0, "done")
    trials.again(0)
    assert [trial.key for trial in trials] == [1, 2] and trials.ended == []
    again = trials.at(0, "a")
    trials.report(again, [9.0] * FEWEST_REPORTS, 0.3)
    assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].order == [0, 1, 2]
    assert (again.forecast.final, again.forecast.low, again.forecast.high) == (-5.0,) * 3
    trials.end(0, "done")
    assert sorted(trial.key for trial in trials) == [0, 1, 2]


def test_a_model_whose_result_was_lost_keeps_what_it_reported_before_its_state():
    trials = trials_at("a", reports=0)
    others = [{"auc": 0.5}, {"auc": 0.5}, {"auc": 0.5, "late": 1.0}, {"auc": 0.5, "late": 2.0}]
    trials.report(trials.alive[0], [4.0, 3.0, 2.0, 1.0], 0.1, others=others)
    trials.end(0, "done")
    trials.again(0)
    trials.arrive(trials.at(0, "b"), 1)
    again = trials.at(0, "a")  # lost once more
    trials.arrive(again, 2)
    assert [*again.losses.curve.steps] == [1, 2] and again.others.keys() == {"auc"}
    trials.report(again, [2.0, 1.0], 0.1, others=[{"auc": 0.5}] * 2)
    assert [*again.losses.curve.steps] == [*again.others["auc"].steps] == [1, 2, 3, 4]
    assert [*again.losses.curve.losses] == [4.0, 3.0, 2.0, 1.0]
    assert (again.losses.first, again.losses.count, again.reports, again.step) == (4.0, 4, 4, 4)


def test_a_task_that_trains_several_loses_them_all():
    trials = Trials(SearchSettings())
    for number in "ab":
        trials.report(trials.at("task", "w", number), [ord(number)], 0.1)
    trials.end("task", "done")
    assert len(trials.ended) == 2
    trials.again("task")
    trials.again("another")
    assert list(trials) == []
    assert [trials.at("task", "w", number).known for number in "ab"] == [97.0, 98.0]


def test_a_model_that_failed_is_not_known_when_it_is_retried():
    trials = trials_at("a")
    trials.end(0, "failed")
    trials.again(0)
    assert math.isnan(trials.at(0, "a").known)


@given(
    pace=st.floats(0.001, 100),
    limit=st.floats(0.01, 1000),
    silence=st.floats(0, 1e4),
    waits=st.booleans(),
)
def test_a_trial_that_trains_has_stalled_beyond_the_limit_and_ten_times_its_pace(
    pace, limit, silence, waits
):
    trials = Trials(SearchSettings(silent=limit))
    trial = trials.at(0, "a")
    trials.report(trial, [1.0] * 4, 4 * pace)
    trial.heard = 50.0
    trial.become(TrialState.WAITS if waits else TrialState.TRAINS)
    is_stalled = not waits and (50.0 + silence) - 50.0 > max(limit, 10 * pace)
    assert trials.find_stalled(50.0 + silence) == [trial] * is_stalled
    assert trials.find_stalled(50.0 + silence) == []  # it was before
    assert (trial.state is TrialState.STALLED) == is_stalled
    # Its thread is counted by nobody, and no other one is taken for its.
    is_blocked = not waits and (50.0 + silence) - 50.0 > max(min(limit, BLOCKED_SECONDS), 10 * pace)
    assert trial.state.blocked == is_blocked
    assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].order == [0] * (not is_blocked)


def test_nothing_stalls_without_a_limit_or_a_report():
    trials = Trials(SearchSettings(silent=None))
    trials.report(trials.at(0, "a"), [1.0], 1.0)
    trials.alive[0].heard = 0.0
    assert trials.find_stalled(1e9) == []
    trials = Trials(SearchSettings())
    trials.at(0, "a").heard = 0.0
    assert trials.find_stalled(1e9) == []


def test_a_trial_that_is_about_to_end_is_not_told_to_leave():
    trials = trials_at("a", "a", steps=FEWEST_REPORTS + 1)
    last, other = trials
    trials.report(last, [0.0], 0.1)
    for trial in trials:
        trial.checkpoint.reports, trial.checkpoint.usable = True, True
    turns, _ = choose_everywhere(
        trials, {"a": WorkerQuota(0), "b": WorkerQuota(2)}, 0, Destinations(lambda key: ())
    )
    assert turns["a"].leave == [other.key]


def test_only_those_with_states_are_told_to_leave():
    trials = trials_at(*"aaa")
    trials.can_move(trials.alive[2], 0, 1.0)
    assert choose(trials, {"a": WorkerQuota(1, leaves=True)}, 0)["a"].leave == [2]
    train(trials, 0, 1, 2)
    assert choose(trials, {"a": WorkerQuota(3, leaves=True)}, 0)["a"].leave == []


def test_nothing_is_known_any_more_of_a_task_that_was_dropped():
    trials = trials_at(*"ab")
    for key in (0, 1):
        trials.end(key, "done")
        trials.again(key)
    trials.drop(0)
    assert math.isnan(trials.at(0, "a").known) and trials.at(1, "a").known < 2


@pytest.mark.parametrize("are", ["training", "done"])
def test_models_of_a_cell_are_dropped_one_by_one(are):
    """What is left is compared anew once, and not for each of them."""

    def calls(n):
        trials = trials_at(*"a" * n)
        for key in range(n) if are != "training" else ():
            trials.end(key, "done")
        make_ready(trials, 500.0)
        with counted_calls("trials/trials.py") as found:
            for key in range(n):
                trials.drop(key)
            assert (trials.best, trials.best_final, trials.longest) == (500.0, 500.0, 1)
        return found.total()

    few, many = calls(20), calls(80)
    assert many <= 4 * few


class Number:
    """Number of a trial whose comparisons are counted."""

    def __eq__(self, other):
        return self is other

    __hash__ = object.__hash__


def test_a_task_may_train_any_number_of_models_one_after_the_other():
    def calls(n):
        trials = Trials(SearchSettings(), most_of_a_task=50)
        with counted_calls("trials/trials.py", __file__) as found:
            for k in range(n):
                trials.report(trials.at("task", "a", Number()), [1 / (k + 1)], 0.1)
        assert len(trials.ended) == min(n - 1, 50)
        return found.total()

    few, many = calls(20), calls(80)
    assert many <= 4.2 * few


def test_the_steps_at_which_models_are_compared_are_bounded():
    peers = Peers(most_steps=10)
    for k in range(1, 100):
        peers.add(7**k % 10**12 + k, 1 / k)
    assert len(peers._losses) == 10


def test_a_model_has_as_many_steps_to_come_as_are_left_and_one_beyond_its_last():
    trials = trials_at("a", steps=10, reports=8)
    trial = trials.alive[0]
    for left in (2, 1, 1):
        assert trials.steps_left(trial) == left
        trials.report(trial, [0.1], 0.1)


def test_all_as_a_goal_a_model_whose_result_was_lost_comes_last():
    """Its loss is known, so there is no fall to come, by which the others are ranked."""
    trials = trials_at(*"aaa", goal="all")
    trials.report(trials.alive[0], [-5.0], 0.1)
    trials.end(0, "done")
    trials.again(0)
    trials.report(trials.at(0, "a"), [9.0] * FEWEST_REPORTS, 0.3)
    assert choose(trials, {"a": WorkerQuota(1)}, 0)["a"].order[-1] == 0


def test_the_lowest_final_loss_is_that_of_the_best_that_is_done():
    trials = trials_at(*"aaa")
    assert trials.best_final == math.inf
    for key, outcome in ((2, "done"), (0, "failed"), (1, "done")):
        trials.end(key, outcome)
    assert trials.best_final == pytest.approx(1 + 1 / FEWEST_REPORTS)


def test_a_model_that_is_as_long_as_the_longest_makes_as_many_steps_again():
    trials = trials_at(*"aa", steps=None, reports=8)
    trials.end(0, "done")
    trial = trials.alive[1]
    assert trials.steps_left(trial) == trial.step == 8


def test_models_of_one_report_are_compared_by_their_places():
    trials = trials_at(*"a" * 8)  # which end at their number
    for key, loss in enumerate((9.0, 2.0), 8):
        trials.report(trials.at(key, "a"), [loss], 0.1)
        trials.alive[key].become(TrialState.WAITS)
    order = choose(trials, {"a": WorkerQuota(1)}, 0)["a"].order
    assert order[0] == 0 and order.index(8 + 1) < order.index(8)
    assert math.isnan(trials.alive[8].forecast.final)


def test_places_count_as_far_as_early_ones_have_told_final_losses():
    early, finals = Early(), [float(k) for k in range(40)]
    for loss in finals:
        early.add(1, loss)
    told = early.scores([(1, 1.0), (1, 30.0)], finals, finals)
    misled = early.scores([(1, 1.0), (1, 30.0)], finals[::-1], finals)
    assert misled == [0, 0] < told and told[0] < told[1]  # all are explored before others go on


def test_one_of_eight_threads_leads_to_the_first_models_that_are_ready():
    trials = trials_at(*"a" * 8)
    trials.report(trials.alive[1], [1.1] * 20, 1.0)  # among the best two, it is ready first
    choose(trials, {"a": WorkerQuota(8)}, 0)
    trials.report(trials.alive[1], [5.0] * 5, 0.2)
    assert [t.key for t in trials if t.leads] == [1]
    assert allowed(choose(trials, {"a": WorkerQuota(1)}, 5)["a"]) == [
        1
    ]  # though others are to come
