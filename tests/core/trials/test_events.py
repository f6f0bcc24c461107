"""Events of a search: whatever happens to its trials, each begins once before it ends once."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from dask_slaq.core.trials import Events, SearchSettings, Trials

KEYS, WORKERS = ("x", "y"), ("a", "b")
#: A law in letters: begin, report, moved, pruned, end.
LAW = re.compile("(b[rmp]*e)*")
LETTERS = {"begin": "b", "report": "r", "moved": "m", "pruned": "p", "end": "e"}

happens = st.tuples(
    st.sampled_from(["report", "report", "end", "leave", "lose", "drop", "again", "prune"]),
    st.sampled_from(KEYS),
    st.sampled_from(WORKERS),
    st.integers(0, 4),
)


def happen(trials, what, key, worker, number):
    """Do to the trials what the scheduler does when this happens."""
    trial = trials.alive.get(key)
    if what == "report":
        trial = trials.at(key, worker)
        if trial.away:
            trials.arrive(trial, min(number, trial.reports))
        trials.report(trial, [1.0 / (k + 1) for k in range(number)], 0.1)
    elif what == "end":
        trials.end(key, ("done", "failed")[number % 2])
    elif what == "leave" and trial is not None:
        trial.kept = number
        trials.leave(key)
    elif what == "lose":
        trials.end(key, "")
    elif what == "drop":
        trials.drop(key)
    elif what == "again" and trial is None:
        trials.again(key)
    elif what == "prune" and trial is not None:
        trials.judge(trial, "pruned")


@given(st.lists(happens, max_size=40), st.integers(0, 40))
@example([("report", "x", "a", 0), ("prune", "x", "a", 0)], 1)
def test_each_model_begins_once_and_ends_once(some, followed_from):
    trials = Trials(SearchSettings())
    events = Events()
    for i, each in enumerate(some):
        if i == followed_from:
            trials.follow(events)
        happen(trials, *each)
    trials.follow(None)
    told = events.read(0)["events"]
    assert events.over or followed_from >= len(some)
    for key in KEYS:
        mine = [event for event in told if event["key"] == key]
        letters = "".join(LETTERS[event["event"]] for event in mine)
        assert LAW.fullmatch(letters.replace("bp", "b")), letters
        steps = 0
        for event in mine:
            steps = 0 if event["event"] == "begin" else steps
            if event["event"] == "report":
                assert event["step"] > steps
                steps = event["step"]


@given(st.lists(st.sampled_from(["report", "end", "read"]), max_size=60), st.integers(1, 8))
def test_events_are_read_once_in_order_and_few_are_kept(some, most):
    events, after, found, added = Events(most), 0, [], []
    for i, what in enumerate(some):
        if what == "read":
            told = events.read(after)
            assert len(told["events"]) <= 2 * most
            assert told == events.read(after)  # until the reader says that they have arrived
            after = told["after"]
            found += [event["key"] for event in told["events"]]
        else:
            events.add({"event": what, "key": i})
            added.append(i)
    found += [event["key"] for event in events.read(after)["events"]]
    assert found == sorted(set(found)) and set(found) <= set(added)
    assert len(found) + events.dropped == len(added)
