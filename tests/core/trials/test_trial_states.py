"""States of a trial: whatever happens, they change as the table says."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.trials import SearchSettings, Trial, TrialEvent, Trials, TrialState
from dask_slaq.core.trials.trial_state import CHANGES


class Walk:
    """Trials of a search to which one thing after the other happens, as the scheduler hears it."""

    def __init__(self) -> None:
        self.trials, self.seen = Trials(SearchSettings(steps=9, silent=100.0)), set[Trial]()
        self.changes = set[tuple[TrialState, TrialState]]()

    def do(self, *events) -> None:
        become = Trial.become

        def note(trial: Trial, state: TrialState) -> None:
            self.changes.add((trial.state, state))
            become(trial, state)

        with mock.patch.object(Trial, "become", note):
            for key, event, *given in events:
                ended = {trial for trial in self.seen if trial.state.ended}
                getattr(self, event)(key, *given)
                self.seen |= {*self.trials}
                assert all(
                    trial.state.ended for trial in ended
                )  # a task that runs again is another one
                assert not any(trial.state.ended for trial in self.trials.alive.values())
                assert all(trial.state.ended for trial in self.trials.ended)

    def message(self, key, what, late=False, worker="a", anew=False, begins=0) -> None:
        trial = self.trials.at(key, worker, anew=anew)
        self.trials.hear(trial, 0.0, begins, None, late=late)
        self.trials.report(trial, [0.5], 0.1)
        if what in (TrialEvent.WAITS, TrialEvent.LEFT):
            trial.become(TrialState[what.name])
        elif what is TrialEvent.KEEPS:
            trial.checkpoint.reports = trial.reports
        elif what is TrialEvent.GOES or trial.state.waits:
            self.trials.begin_turn(trial)

    def send(self, key) -> None:
        trial = self.trials.alive.get(key)
        if trial is not None and trial.state is TrialState.MIGRATING:
            trial.become(TrialState.SENT)

    def secede(self, key) -> None:
        if (trial := self.trials.alive.get(key)) is not None:
            self.trials.secede(trial)

    def leave(self, key, outcome) -> None:
        if outcome or not self.trials.leave(key):
            self.trials.end(key, outcome)

    def again(self, key) -> None:
        self.trials.again(key)

    def silence(self, key, seconds) -> None:
        self.trials.find_stalled(seconds)


MESSAGES = [("message", what, late) for what in TrialEvent for late in (False, True)]
OTHERS = [("send",), ("secede",), ("again",), ("silence", 10.0), ("silence", 1e3)]
EVENTS = MESSAGES + OTHERS + [("leave", outcome) for outcome in ("", "done", "failed")]


def test_the_table_has_the_changes_that_happen_and_no_others():
    changes, paths = set(), {TrialState.TRAINS: [("message", TrialEvent.KEEPS)]}
    for state in (queue := list(paths)):
        for event in EVENTS:
            walk = Walk()
            walk.do(*[(0, *each) for each in (*paths[state], event)])
            changes |= {(before, after) for before, after in walk.changes if before is not after}
            (after,) = {trial.state for trial in walk.trials} or {state}
            if after not in paths:
                paths[after] = [*paths[state], event]
                queue.append(after)
    assert changes == {(before, after) for before in CHANGES for after in CHANGES[before]}


some_message = st.tuples(
    st.just("message"),
    st.sampled_from(TrialEvent),
    st.booleans(),
    st.sampled_from("ab"),
    st.booleans(),
    st.integers(0, 3),
)


@given(st.lists(st.tuples(st.integers(0, 1), some_message | st.sampled_from(EVENTS)), max_size=90))
def test_whatever_happens_each_change_is_in_the_table(events):
    walk = Walk()
    walk.do(*[(key, *event) for key, event in events])
    assert all(after in CHANGES[before] | {before} for before, after in walk.changes)
    assert not any(trial.odd for trial in walk.seen)


def test_a_change_that_is_not_in_the_table_is_odd_and_an_ended_trial_stays_so():
    trial = Trial(0, "a", "1")
    trial.become(TrialState.SENT)
    assert trial.state is TrialState.SENT and trial.odd == "TRAINS does not become SENT"
    trial.become(TrialState.ENDED)
    trial.become(TrialState.TRAINS)
    assert trial.state.ended and trial.odd == "ENDED does not become TRAINS"
