"""Replaying a recorded engine reproduces its decisions."""

import json
from functools import cache

import numpy as np
import pytest

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, UnknownJob
from dask_slaq.core.owners.terms import OwnerTerms
from dask_slaq.core.recording import BadEvent
from dask_slaq.core.recording.recorder import CALLS, Recorder
from dask_slaq.core.recording.replay import Replay, replay
from dask_slaq.core.run_history import Kind, PastRun, PastRuns


class Recording:
    """A recorder and its events, which went through JSON."""

    def __init__(self, *args, **kwargs):
        self.lines = []
        engine = Engine(*args, **kwargs)
        self.engine = Recorder(engine, lambda event: self.lines.append(json.dumps(event)), 5.0)

    @property
    def events(self):
        return [json.loads(line) for line in self.lines]

    def kinds(self):
        return [event["event"] for event in self.events]


def drive(engine, seed=0, epochs=25, switch=False):
    """A small cluster's life: jobs come, work, report, are looked at and go; workers change."""
    rng = np.random.default_rng(seed)
    workers = {f"w{i}": 2 for i in range(4)}
    now = 10.0
    for epoch in range(epochs):
        if epoch % 4 == 0 and epoch < 20:
            settings = {"max_share": epoch % 8 or None, "max_iter": 40 if epoch == 12 else None}
            owner = "bob@x" if epoch == 8 else "ann"
            if epoch == 12:
                settings["max_slowdown"] = float("inf")
            if epoch in (4, 12, 16):
                settings["search"] = "grid"
            if epoch not in (4, 8):
                settings["kind"] = Kind("sgd", (("C", epoch / 8),))
            engine.add_job(f"job-{epoch}", now, weight=1 + epoch % 3, owner=owner, **settings)
        if epoch == 6:
            engine.add_job("other:a", now, reports=False)
            engine.set_kind("job-4", Kind("sgd", (("C", 0.5),)))  # it has reported before
        if epoch == 9:
            workers = {"w1": 2, "w2": 2, "w9": 3}
        for name, job in list(engine.jobs.items()):
            for _ in range(rng.integers(0, 4)):
                for _ in range(rng.integers(0, 5)):
                    engine.observe_task(name, rng.exponential(0.1), rng.integers(1, 9))
                if job.reports:
                    engine.report(name, 10.0 / (1 + job.iteration) + rng.random() / 100, now)
            if rng.random() < 0.3:
                _ = job.iteration  # a look, for which the engine takes in what waits
            engine.observe_demand(name, int(rng.integers(0, 6)))
        if "other:a" in engine.jobs:
            engine.set_floor("other:a", 0.25)
            engine.observe_left("other:a", rng.choice([5.0, 50.0, float("nan")]))
        if epoch == 11:
            engine.set_max_iter("job-8", 30)
            engine.observe_use({"ann": 7.5, "bob": 0.1})
        if epoch == 8:
            engine.set_kind("job-8", Kind("sgd"))
        if epoch in (10, 15, 19, 22):  # counted by tasks, and by iterations
            engine.observe_left("job-8", 30.0 if epoch in (10, 19) else float("nan"))
        if epoch == 13:
            engine.set_max_iter("job-8", None)
        if epoch in (7, 10):
            engine.pause("job-4", epoch == 7)
        if epoch == 9:
            engine.set_job(
                "job-0", weight=5, min_share=0.5, max_share=3, target=0.1, max_slowdown=1.5
            )
        if epoch == 15:
            engine.set_job("job-8", max_share=float("inf"))
        if epoch == 16 and switch:
            before = engine.policy.name
            engine.set_policy("fair")
            engine.set_policy(before)
        if epoch == 20:
            engine.set_owner("", OwnerTerms(weight=2, max_threads=3))
        if epoch in (21, 23):
            engine.set_spare([""] if epoch == 21 else [])
            engine.set_reserved({"": 2.0} if epoch == 23 else {"ann": 1.0})
        if epoch in (14, 18):
            engine.remove_job(f"job-{epoch - 14}", now, "done")
        engine.reallocate(
            workers,
            now + 0.5,
            eligible={"job-4": ["w1", "w2"]} if epoch > 12 else {},
            affinity={name: {"w1": rng.random() * 1e6} for name in list(engine.jobs)[:2]},
        )
        now += 1.0


@cache
def driven(policy):
    """The lines of the log of such a life."""
    made = Recording(policy)
    drive(made.engine)
    return made.lines


def events_under(policy):
    return [json.loads(line) for line in driven(policy)]


def past_runs(seed=0):
    """A memory of runs of the jobs' kind, with more of them than forecasts rest on."""
    rng, memory = np.random.default_rng(seed), PastRuns()
    iteration = np.arange(1, 41)
    for number in range(20):
        loss = 9.0 * rng.uniform(0.5, 2.0) / (iteration + rng.random(40) / 3)
        work, law = (0.3, (0.1, 0.2, 0.0, 0.001)) if number % 2 else (float("nan"), None)
        kind = Kind("sgd", (("C", rng.integers(0, 5) / 4),))
        memory.add(
            PastRun(f"past-{number}", kind, iteration, loss, 40, work=work, tasks=4.0, law=law)
        )
    return memory


def test_a_log_is_replayed_without_the_store_that_it_drew_on():
    """With the runs that jobs drew on, the log has all that its decisions depend on."""
    made = Recording("max-total", past_runs=past_runs())
    drive(made.engine)
    assert made.events[-1]["grants"] != events_under("max-total")[-1]["grants"]
    written = [event for event in made.events if event["event"] == "past_run"]
    assert 8 <= len(written) < 20
    assert len({event["run"] for event in written}) == len(written)
    found = replay(made.events)
    assert (found.decisions, found.reproduced, found.difference) == (25, 25, None)
    lacking = [event for event in made.events if event is not None and event.get("run") != 0]
    with pytest.raises(BadEvent, match="past run 0 is missing"):
        replay(lacking)


OWNERS = {"ann": OwnerTerms(1.0, 3.0), "default": OwnerTerms(2.0)}


@pytest.mark.parametrize(
    ("policy", "more"),
    [("none", {}), ("fair", {}), ("max-total", {"owners": OWNERS}), ("first-to-target", {})],
)
def test_every_decision_is_replayed_to_the_last_bit(policy, more):
    made = Recording(policy, epoch=2.0, floor=0.3, max_slowdown=3.0, past_runs=past_runs(), **more)
    drive(made.engine, switch=True)
    found = replay(made.events)
    assert (found.decisions, found.reproduced, found.difference) == (25, 25, None)
    assert set(made.kinds()) == {*CALLS, "start", "decide", "past_run"}


def test_recording_changes_decisions_by_rounding_alone():
    made, plain = Recording("max-total"), Engine("max-total")
    drive(made.engine)
    drive(plain)
    for name, grant in plain.grants.items():
        assert made.engine.grants[name].share == pytest.approx(grant.share, rel=1e-6)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda grant: grant.update(share=grant["share"] * (1 + 1e-15)), "share"),
        (lambda grant: grant["workers"].update(w7=1.0), "workers"),
        (lambda grant: grant.pop("index"), "index"),
    ],
)
def test_the_first_difference_is_named(change, field):
    events = events_under("max-total")
    number = 0
    for event in events:
        number += event["event"] == "decide"
        if number == 7 and "job-4" in event.get("grants", {}):
            change(event["grants"]["job-4"])
            break
    found = replay(events)
    assert (found.decisions, found.reproduced) == (25, 24)
    assert (found.difference.decision, found.difference.job) == (7, "job-4")
    assert found.difference.field == field
    assert "decision 7" in str(found.difference) and "'job-4'" in str(found.difference)


def test_a_lost_report_is_noticed():
    events = events_under("max-total")
    first = next(i for i, event in enumerate(events) if event["event"] == "report")
    found = replay([*events[:first], *events[first + 1 :]])
    assert found.difference is not None


def test_what_is_refused_is_not_recorded():
    made = Recording("fair")
    made.engine.add_job("a", 6.0)
    before = made.lines.copy()
    with pytest.raises(DuplicateJob):
        made.engine.add_job("a", 7.0)
    with pytest.raises(NonFiniteLoss, match="must be a number"):
        made.engine.report("a", "low", 7.0)
    for call in (
        lambda: made.engine.report("b", 1.0, 7.0),
        lambda: made.engine.remove_job("b", 7.0),
        lambda: made.engine.observe_task("b", 1.0),
        lambda: made.engine.observe_demand("b", 1),
        lambda: made.engine.set_floor("b", 1.0),
        lambda: made.engine.set_max_iter("b", 9),
    ):
        with pytest.raises(UnknownJob):
            call()
    with pytest.raises(InvalidSetting, match="max_iter"):
        made.engine.set_max_iter("a", 0)
    assert made.lines == before


def test_what_did_not_change_is_not_told_again():
    made = Recording("fair")
    made.engine.add_job("a", 6.0)
    for now in (7.0, 8.0):
        made.engine.observe_demand("a", 3)
        made.engine.reallocate({"w": 4}, now, affinity={"a": {"w": 8.0}}, eligible={"a": ["w"]})
    first, second = (event for event in made.events if event["event"] == "decide")
    assert first["workers"] == {"w": 4} and first["affinity"] == {"a": {"w": 8.0}}
    assert not {"workers", "affinity", "eligible"} & set(second)
    assert made.kinds().count("demand") == 1
    assert replay(made.events).reproduced == 2


def test_task_times_are_summed_up_until_the_engine_is_told():
    made = Recording("fair")
    made.engine.add_job("a", 6.0)
    for seconds, at_once in ((0.1, 2), (0.2, 5), (0.3, 1)):
        made.engine.observe_task("a", seconds, at_once)
    assert made.engine.jobs["a"].attained == 0.0
    made.engine.report("a", 1.0, 7.0)
    assert made.engine.jobs["a"].attained == 0.1 + 0.2 + 0.3
    (tasks,) = (event for event in made.events if event["event"] == "tasks")
    assert (tasks["count"], tasks["at_once"]) == (3, 5)


def test_seconds_that_a_gang_was_charged_too_many_are_replayed():
    recording = Recording("max-total")
    engine = recording.engine
    engine.add_job("a", 10.0)
    for now, seconds in ((11.0, 3.0), (12.0, -1.5)):  # while it runs, and when it ends
        engine.observe_task("a", seconds, 2)
        engine.observe_demand("a", 2)
        engine.reallocate({"w": 2}, now)
    charged = [event["seconds"] for event in recording.events if event["event"] == "tasks"]
    assert charged == [3.0, -1.5]
    assert replay(recording.events).reproduced == 2


def test_a_recording_without_its_beginning_is_skipped():
    events = events_under("fair")
    rest = [{**events[0], "continued": True}, *events[60:]]
    found = replay(rest)
    assert found.decisions == 0 and found.skipped > 0
    assert found.why == "the beginning of the recording is gone"
    # The start that each further file repeats is none.
    again = [*events[:60], {**events[0], "continued": True}, *events[60:]]
    assert replay(again).reproduced == 25
    # What is recorded after that is whole.
    assert replay([*rest, *events]).reproduced == 25


def test_another_predictor_cannot_be_replayed():
    made = Recording("fair")
    made.engine.reallocate({"w": 1}, 6.0)
    events = [{**made.events[0], "predictor": "mine.Oracle"}, *made.events[1:]]
    found = replay(events)
    assert (found.decisions, found.skipped) == (0, 1) and "mine.Oracle" in found.why


def test_a_recording_begins_with_its_start():
    with pytest.raises(BadEvent, match="'leave' comes before 'start'"):
        Replay().feed({"event": "leave"})
    start = Recording("fair").events[0]
    with pytest.raises(BadEvent, match="version 11, and this release reads 13"):
        replay([{**start, "version": 11}])
