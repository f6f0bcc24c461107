"""The table of job settings is what blocks, steering, engine and docs follow; names are text."""

import asyncio
import inspect
import json
import math
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dask_slaq as slaq
from dask_slaq.client.connection import request
from dask_slaq.core import settings
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.reports import as_metrics
from dask_slaq.core.jobs.settings import (
    CHANGEABLE,
    JOB_SETTINGS,
    OF_ENGINE,
    OF_SEARCH,
    check_changes,
    check_job_settings,
)
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.core.recording.replay import Replay
from dask_slaq.core.run_history import read_kind
from dask_slaq.core.text import printable
from dask_slaq.core.trials import SearchSettings, bounded

ROOT = Path(__file__).parents[2]


def defaults(function):
    """Arguments and their defaults, without those that are no settings."""
    found = inspect.signature(function).parameters.values()
    return {
        each.name: each.default
        for each in found
        if each.name not in ("self", "name", "job", "client")
    }


def test_a_job_takes_what_the_table_lists_with_its_defaults():
    settings = {name: each.default for name, each in JOB_SETTINGS.items()}
    assert defaults(slaq.job) == {**settings, "metric": None}


def test_a_search_takes_what_the_table_lists_and_settings_of_its_own():
    found = defaults(slaq.search)
    own = {each.name: each.default for each in fields(SearchSettings)}
    own |= {"silent": "2min"}  # as people write it
    of_jobs = {name: JOB_SETTINGS[name].default for name in OF_SEARCH}
    assert found == {**of_jobs, **own, "metric": None, "reattach": False, "carries": ()}


def test_what_may_change_is_an_argument_of_what_changes_it():
    assert defaults(slaq.change) == dict.fromkeys(CHANGEABLE)


def test_the_page_on_configuration_has_each_option():
    page = (ROOT / "docs" / "configuration.md").read_text()
    table = page.partition("## Options of a job")[2]
    rows = re.findall(r"^\| (`.+?) \|", table, re.M)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(listed) == sorted([*JOB_SETTINGS, "name", "client", "metric"])


numbers = st.floats(1e-3, 1e3)
some = st.fixed_dictionaries(
    {"weight": numbers},
    optional={
        "min_share": st.floats(0, 5),
        "max_share": st.floats(6, 100),
        "max_slowdown": st.one_of(st.floats(1, 9), st.just(math.inf)),
        "target": numbers,
        "max_iter": st.integers(1, 10**6),
    },
)


@given(some)
def test_checked_settings_stay_as_they_are_also_in_the_engine(given):
    checked = check_job_settings(given)
    kept = {name: checked[name] for name in OF_ENGINE}
    assert check_job_settings(kept, OF_ENGINE) == kept
    assert given.items() <= checked.items()
    engine = Engine()
    engine.add_job("a", 0.0, **given)
    expected = dict(kept)
    if not given.get("min_share"):
        expected["min_share"] = None
    assert engine.jobs["a"].settings == expected


@given(some, some)
def test_changes_count_and_are_replayed(given, changes):
    changes.pop("max_iter", None)
    lines = []
    engine = Recorder(Engine(), lambda event: lines.append(json.dumps(event)), 0.0)
    engine.add_job("a", 0.0, **given)
    engine.set_job("a", **changes)
    now = engine.jobs["a"].settings
    for name in set(now) - {"min_share"}:
        assert now[name] == {**given, **changes}.get(name)
    replay = Replay()
    for line in lines:
        replay.feed(json.loads(line))
    assert replay._engine.jobs["a"].settings == now


@given(some, st.sampled_from([("min_share", 0), ("min_share", 0.0), ("max_share", math.inf)]))
def test_a_change_removes_a_limit(given, change):
    engine = Engine()
    engine.add_job("a", 0.0, **given)
    before = engine.jobs["a"].settings
    engine.set_job("a", **dict([change]))
    assert engine.jobs["a"].settings == {**before, change[0]: None}


@pytest.mark.parametrize(
    "wrong",
    [
        {"weight": 0}, {"weight": None}, {"weight": math.nan}, {"weight": 1e9}, {"weight": "2"},
        {"min_share": -1}, {"max_share": 0}, {"min_share": 3, "max_share": 2},
        {"max_slowdown": 0.5},
        {"target": math.inf}, {"max_iter": 1.5}, {"gang": 1}, {"target_kind": "los"}, {"by": 60.0},
        {"target": 2.0, "target_kind": "reduction"}, {"stop": True}, {"resources": "GPU"},
        {"kind": 3}, {"owner": ""}, {"value_per_hour": 0}, {"more": 1},
        {"weight": -1.5}, {"weight": math.inf}, {"weight": True}, {"weight": 5e-324},
        {"min_share": 1.7e308}, {"min_share": "1"}, {"max_share": math.inf}, {"target": math.nan},
        {"target": "low"}, {"max_iter": 0}, {"max_iter": "9"}, {"max_iter": math.inf},
        {"resources": {"GPU": 0}}, {"resources": {"GPU": "1"}}, {"resources": {1: 1}},
        {"resources": ["GPU"]}, {"by": "soon"}, {"stop": "yes"},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_allowed_is_refused_by_its_name(wrong):
    with pytest.raises(InvalidSetting, match=next(iter(wrong))):
        check_job_settings(wrong)


def test_what_may_not_change_is_refused_with_what_may():
    with pytest.raises(InvalidSetting, match=r"'gang' cannot be changed .*weight, min_share"):
        check_changes({"gang": True}, {})
    engine = Engine()
    engine.add_job("a", 0.0, max_share=2.0)
    with pytest.raises(InvalidSetting, match="must not be over"):
        engine.set_job("a", weight=2.0, min_share=3.0)
    assert engine.jobs["a"].weight == 1.0


def test_each_call_that_changes_an_engine_is_recorded():
    looks = {"likeness", "next_thread", "end_of", "traits", "in_force"}
    methods = {name for name in vars(Engine) if not name.startswith("_")} - looks
    assert methods == {name for name in vars(Recorder) if name in vars(Engine)} - {"__init__"} - {
        name for name in vars(Engine) if name.startswith("_")
    }


def test_a_recorder_repeats_nothing_and_takes_arguments_in_any_way():
    events = []
    engine = Recorder(Engine(), events.append, 0.0)
    engine.add_job("a", 0.0)
    del events[:]
    engine.observe_demand("a", 0)
    engine.observe_left("a", math.nan)
    engine.observe_left(job="a", seconds=2)
    engine.observe_left("a", 2.0)
    engine.observe_left("a", 2.0, more=True)
    engine.pause("a")
    engine.set_floor("a", threads=0)
    engine.set_floor("a", 1)
    assert events == [
        {"event": "left", "job": "a", "seconds": 2.0},
        {"event": "left", "job": "a", "seconds": 2.0, "more": True},
        {"event": "pause", "job": "a"},
        {"event": "floor", "job": "a", "threads": 1.0},
    ]


#: A line break, escape code, lone surrogate, bidi override, zero-width space, line separator.
HOSTILE = [f"a{each}b" for each in "\n\x1b\ud800\u202e\u2066\u200b\u2028\ufeff"]
CHECKS = {
    "job": settings.check_name,
    "owner": settings.check_owner,
    "kind": read_kind,
    "number of a kind": lambda name: read_kind({"name": "a", name: 1.0}),
    "label": lambda name: settings.check_limits({name: 1}),
    "resource": lambda name: settings.check_resources({name: 1}),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("what", CHECKS)
def test_a_name_that_moves_hides_or_turns_text_is_refused(what, name):
    CHECKS[what]("a\u00e4\u05d0\u4e2d b")
    with pytest.raises(InvalidSetting) as error:
        CHECKS[what](name)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_shown_and_sent_is_printable(name):
    assert printable(name).isprintable()
    assert list(as_metrics({name: 1.0})) == [printable(name)]
    ((key, value),) = bounded({name: name}).items()
    assert key.isprintable() and value.encode()


@pytest.mark.parametrize("what", [{"by": "\ud800"}, {"a": [("b", {"\udfff": 1})]}])
def test_a_lone_surrogate_is_not_sent(what):
    with pytest.raises(InvalidSetting, match="Unicode"):
        asyncio.run(request(None, "slaq_steer", **what))
