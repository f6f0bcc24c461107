"""What packages outside of this one add: policies, predictors, goals, rules, owners."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import dask
import pytest
import tomllib
from distributed.utils_test import captured_logger, gen_cluster
from driving import inside, report_epochs, start_plugin, until, with_plugin

import dask_slaq as slaq
from dask_slaq import plug_ins
from dask_slaq.config import settings
from dask_slaq.core.errors import InvalidSetting, NotAllowed, UnknownPolicy
from dask_slaq.core.policies import POLICIES, add_policy, policy
from dask_slaq.core.search_settings import GOALS
from dask_slaq.testing import check_policy, check_predictor

PLUG_IN = Path(__file__).parents[1] / "examples" / "plug_in"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """The package of the examples, installed beside ours."""
    project = tomllib.loads((PLUG_IN / "pyproject.toml").read_text())["project"]
    about = tmp_path / f"slaq_plug_in-{project['version']}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, names in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {where}" for name, where in names.items())]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")
    (tmp_path / "slaq_plug_in.py").write_text((PLUG_IN / "slaq_plug_in.py").read_text())
    (tmp_path / "broken_plug_in.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    plug_ins._entries.cache_clear()
    yield tmp_path
    plug_ins._entries.cache_clear()
    for name in ("slaq_plug_in", "broken_plug_in"):
        sys.modules.pop(name, None)


BROKEN = """
class Greedy:
    name = "greedy"
    def __call__(self, snapshot):
        from dask_slaq.core.policies import Allocation
        return Allocation(snapshot.weight * 1000, snapshot.weight)

class Raises(Greedy):
    def __call__(self, snapshot):
        raise RuntimeError("no idea")

class Forgetful:
    def add(self, job, *, target=None): pass
    def remove(self, job): pass
    def report(self, job, loss):
        raise KeyError(job)
    def fit(self): return 0
    def forecast(self, jobs):
        raise RuntimeError("no idea")

class NoPolicy:
    pass

class Half:
    def __call__(self, value, here):
        return 2.5

class Lists(Greedy):
    def __call__(self, snapshot):
        from dask_slaq.core.policies import Allocation, policy
        found = policy("fair")(snapshot)
        return Allocation(list(found.share), list(found.index))

class Exits(Greedy):
    def __call__(self, snapshot):
        raise SystemExit("the licence has expired")

class Slow(Greedy):
    def __call__(self, snapshot):
        from dask_slaq.core.policies import policy
        import time
        time.sleep(0.02)
        return policy("fair")(snapshot)

class Nothing(Forgetful):
    def report(self, job, loss): pass
    def forecast(self, jobs): return None

class Rising(Nothing):
    def forecast(self, jobs):
        import dataclasses
        from dask_slaq.core.forecast import LossPredictor
        like = LossPredictor()
        for job in jobs:
            like.add(job)
        like.fit()
        found = like.forecast(jobs)
        return dataclasses.replace(found, reduction=-1 - found.reduction)

class Mask:
    def __call__(self, models):
        return [model.loss for model in models], [model.loss > 5 for model in models]

class ExitGoal:
    def __call__(self, models):
        raise SystemExit("the licence has expired")

class NoScores:
    def __call__(self, models):
        return [0.0] * (len(models) + 1), ()

class NanScores(NoScores):
    def __call__(self, models):
        return [float("nan") for _ in models], ()

def fails():
    raise ValueError("on purpose")

def forger(connection):
    return "ann\\nERROR forged line"

def nobody(connection):
    raise OSError("the directory of people does not answer")
"""


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_the_check_lists_pass_what_keeps_the_rules_and_no_other():
    import broken_plug_in
    import slaq_plug_in

    check_policy(slaq_plug_in.HighLoss)
    check_policy(lambda: slaq_plug_in.HighLoss(power=2.0), examples=20, seed=7)
    check_predictor(slaq_plug_in.Halving)
    for name in ("Greedy", "Raises", "NoPolicy", "Lists"):
        with pytest.raises(AssertionError):
            check_policy(getattr(broken_plug_in, name))
    for name in ("Forgetful", "Nothing", "Rising"):
        with pytest.raises(AssertionError):
            check_predictor(getattr(broken_plug_in, name))


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("given", "power"),
    [
        ("high-loss", 1.0),
        ("high-loss(power=2)", 2),
        ("slaq_plug_in:HighLoss", 1.0),
        ("slaq_plug_in.HighLoss", 1.0),
        ("slaq_plug_in:HighLoss(power=0.5)", 0.5),
        ({"class": "slaq_plug_in.HighLoss", "power": 3}, 3),
        ({"class": "high-loss"}, 1.0),
    ],
)
def test_a_policy_is_named_by_path_or_entry_point(given, power):
    with dask.config.set({"slaq.policy": given}):
        text = settings().policy
    made = plug_ins.policy_of(text)
    assert (made.name, made.power) == (text, power)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("quickest", "no policy is called 'quickest'; choose from none, fair"),
        ("a.b:c(1)", "arguments by keyword"),
        ("a.b:c(x=open('f'))", "arguments by keyword"),
        ("a.b:c(x=1", "arguments by keyword"),
        ("a b.c", "is no class path"),
        ({"power": 1}, "is no class path"),
        (3, "no policy is called 3"),
        ("os;print:x", "is no class path"),
    ],
)
def test_what_is_no_policy_is_refused(given, told):
    with dask.config.set({"slaq.policy": given}), pytest.raises(UnknownPolicy) as caught:
        settings()
    assert str(caught.value).startswith("slaq.policy: ") and told in str(caught.value)


def test_names_of_ours_stay_ours():
    kinds = [type(policy(name)) for name in POLICIES]
    for name in POLICIES:
        add_policy(name, lambda: None)
    assert [type(policy(name)) for name in POLICIES] == kinds


@with_plugin([1, 2])
async def test_clients_name_no_code_for_the_scheduler(c, s, plugin, a, b):
    for name in ("dask_slaq.core.policies.quality_driven:Fair", "os:system"):
        with pytest.raises(NotAllowed, match="class path"):
            await slaq.set_policy(name, client=c)
    with pytest.raises(UnknownPolicy):
        await slaq.set_policy("quickest", client=c)
    assert inside(plugin).policy.name == "fair"


@pytest.mark.usefixtures("installed")
@with_plugin([1, 2])
async def test_names_that_packages_add_may_be_set_by_clients(c, s, plugin, a, b):
    await slaq.set_policy("high-loss", client=c)
    assert (await slaq.status(client=c))["policy"] == "high-loss"
    async with slaq.job("first", client=c) as first, slaq.job("second", client=c):
        first.report(1.0)
        assert await c.submit(abs, -1) == 1
        plugin.run_once()
        assert sum(inside(plugin).grants[n].share for n in ("first", "second")) == 3


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("broken_plug_in:Greedy", "above the cap"),
        ("broken_plug_in:Raises", "RuntimeError: no idea"),
        ("broken_plug_in:Lists", "broke: "),
        ("broken_plug_in:Exits", "the licence has expired"),
        ("broken_plug_in:Slow", "first-to-target is used instead"),
    ],
)
@gen_cluster(client=True)
async def test_a_policy_that_breaks_is_replaced_and_told_once(c, s, a, b, text, why, monkeypatch):
    monkeypatch.setattr(plug_ins, "SLOW_SECONDS", 0.01)
    plugin = await start_plugin(c, s, policy=text)
    with captured_logger("dask_slaq.plug_ins") as log:
        async with slaq.job("first", client=c), slaq.job("second", client=c):
            for _ in range(plug_ins.SLOW_CALLS):
                plugin.run_once()
            policy = (await slaq.status(client=c))["policy"]
            assert policy == f"first-to-target (instead of {text})"
            assert sorted(await c.gather(c.map(abs, [-1, -2]))) == [1, 2]
    assert log.getvalue().count("\n") == 1
    assert text in log.getvalue() and why in log.getvalue()
    assert plugin.failed is None


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nowhere:Policy", "ModuleNotFoundError"),
        ("slaq_plug_in:Lottery", "AttributeError"),
        ("slaq_plug_in:HighLoss(seed=3)", "TypeError"),
        ("broken_plug_in:NoPolicy", "cannot be called"),
    ],
)
def test_what_cannot_be_loaded_is_one_line_and_the_default(text, why):
    with captured_logger("dask_slaq.plug_ins") as log:
        assert plug_ins.policy_of(text).name == "first-to-target"
    assert log.getvalue().count("\n") == 1
    assert text in log.getvalue() and why in log.getvalue()


@pytest.mark.usefixtures("installed")
@with_plugin([1, 2], predictor="halving")
async def test_a_predictor_of_somebody_else(c, s, plugin, a, b):
    async with slaq.job("first", client=c) as first, slaq.job("second", client=c):
        await report_epochs(plugin, first, (4.0, 2.0, 1.0))
        assert inside(plugin).forecaster.forecast(["first"]).reduction[0, 1] == 0.5


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("name", ["Forgetful", "Nothing", "Rising"])
@gen_cluster(client=True)
async def test_a_predictor_that_breaks_is_replaced_by_the_default(c, s, a, b, name):
    plugin = await start_plugin(c, s, predictor=f"broken_plug_in:{name}")
    with captured_logger("dask_slaq.plug_ins") as log:
        async with slaq.job("first", client=c) as first, slaq.job("second", client=c):
            await report_epochs(plugin, first, (4.0, 2.0, 1.0))
            assert inside(plugin).forecaster.forecast(["first"]).n_reports.tolist() == [3]
    assert f"broken_plug_in:{name} broke: " in log.getvalue()
    assert log.getvalue().count("\n") == 1 and plugin.failed is None


def train(number):
    for step in range(12):
        time.sleep(0.01)
        slaq.report(number + 1 / (step + 1))
    return number


@gen_cluster(client=True, nthreads=[("", 1)])
async def in_search(c, s, a, goal, prune):
    await start_plugin(c, s)
    async with slaq.search("grid", client=c, goal=goal, steps=12, prune=prune) as search:
        futures = c.map(train, range(9), pure=False)
        await c.gather(futures, errors="skip")
        rows = await search.trials()
    return {row["params"]["number"]: row["state"] for row in rows}, s.plugins["slaq"]


@pytest.mark.usefixtures("installed")
def test_a_goal_of_somebody_else_orders_and_prunes_models():
    states, _ = in_search(goal="asha", prune=True)
    assert states[0] == "done" and sum(state == "pruned" for state in states.values()) >= 2
    states, plugin = in_search(goal="asha", prune=False)  # without pruning nothing is given up
    assert set(states.values()) == {"done"} and plugin.failed is None


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_goal_that_breaks_is_told_once_and_models_train_on(monkeypatch):
    broken = ("nan", "NanScores"), ("none", "NoPolicy"), ("gone", "Missing"), ("exit", "ExitGoal")
    for name, where in (*broken, ("mask", "Mask")):
        entry = plug_ins.EntryPoint(name, f"broken_plug_in:{where}", plug_ins.GROUPS["goal"])
        monkeypatch.setitem(plug_ins._entries("goal"), name, entry)
        with captured_logger("dask_slaq.plug_ins") as log:
            states, plugin = in_search(goal=name, prune=True)
        assert set(states.values()) == {"done"} and plugin.failed is None  # nothing is given up
        assert len(log.getvalue().splitlines()) == 1, log.getvalue()
        assert "best is used instead" in log.getvalue()


@with_plugin([1, 2])
async def test_a_goal_that_nobody_has_added_is_refused(c, s, plugin, a, b):
    for goal in ("asha-of-nobody", "os:system", "slaq_plug_in:Asha", "", 3):
        with pytest.raises(InvalidSetting, match="goal must be one of best, all"):
            await slaq.search("grid", goal=goal, client=c).__aenter__()
    async with slaq.search("grid", client=c) as search:
        with pytest.raises(InvalidSetting, match="goal must be one of best, all"):
            await search.set(goal="asha-of-nobody")


PER_JOB = {"price": 1.0, "maximum": 5, "rule": {"class": "per-job", "workers": 2}}


@pytest.mark.usefixtures("installed")
@with_plugin([1, 2], scaling=PER_JOB)
async def test_a_rule_of_somebody_else_says_how_many_workers_there_are(c, s, plugin, a, b):
    async with slaq.job("first", client=c), slaq.job("second", client=c):
        waits = [c.submit(time.sleep, 0.3, pure=False) for _ in range(2)]
        async with slaq.job("third", client=c):
            some = c.map(time.sleep, [0.3] * 4, pure=False)
            await until(lambda: s.adaptive_target() == 4)
            await c.gather(some)
        await c.gather(waits)


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("rule", ["Raises", "NoPolicy", "Missing", "Half"])
def test_a_rule_that_breaks_is_told_once_and_the_default_is_used(rule):
    @gen_cluster(client=True)
    async def target(c, s, a, b, **more):
        await start_plugin(c, s, scaling={"price": 1.0, "maximum": 9, **more})
        async with slaq.job("first", client=c):
            some = c.map(time.sleep, [1.0] * 9, pure=False)
            await until(lambda: len(s.tasks) == 9)
            found = s.adaptive_target(), s.adaptive_target()
            await c.cancel(some)
        return found

    with captured_logger("dask_slaq.plug_ins") as log:
        assert target(rule=f"broken_plug_in:{rule}") == target()
    (line,) = log.getvalue().splitlines()
    assert line.startswith("slaq.scaling.rule: ") and "the default is used instead" in line


@pytest.fixture(autouse=True)
def own_goals():
    known = dict(GOALS)
    yield
    GOALS.clear()
    GOALS.update(known)


@pytest.mark.usefixtures("installed")
@with_plugin([1, 2], identity="by-host")
async def test_who_a_client_is_may_be_asked_of_a_function(c, s, plugin, a, b):
    async with slaq.job("first", owner="somebody else", client=c):
        (row,) = (await slaq.status(client=c))["jobs"].values()
        assert row["owner"] == "host-127.0.0.1"


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("who", ["nobody", "forger"])
@gen_cluster(client=True)
async def test_of_whom_nothing_is_known_may_do_nothing(c, s, a, b, who):
    await start_plugin(c, s, identity=f"broken_plug_in:{who}")
    with captured_logger("dask_slaq.scheduler.owners.identity") as log:
        with pytest.raises(NotAllowed, match="nobody"):
            await slaq.job("first", client=c).__aenter__()
        assert not any(line.startswith("ERROR forged") for line in log.getvalue().splitlines())
    assert await c.submit(abs, -1) == 1


@gen_cluster(client=True)
async def test_without_the_function_that_says_who_is_who_nothing_starts(c, s, a, b):
    with pytest.raises(InvalidSetting, match="nowhere:who cannot be used"):
        await start_plugin(c, s, identity="nowhere:who")


@pytest.mark.slow
def test_the_simulator_knows_them_in_its_processes(installed):
    names = "fair,high-loss,slaq_plug_in:HighLoss(power=2)"
    command = [sys.executable, "-m", "dask_slaq", "simulate", "--policies", names, "--jobs", "2"]
    given = {**os.environ, "PYTHONPATH": str(installed)}
    command += ["--cores", "16", "--seeds", "2", "--processes", "2", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=given)
    found = json.loads(done.stdout)["policies"]
    assert list(found) == ["fair", "high-loss", "slaq_plug_in:HighLoss(power=2)"]
