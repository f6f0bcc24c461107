"""The engine turns reports and task times into grants."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import train

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import DuplicateJob, InvalidSetting, NonFiniteLoss, UnknownJob
from dask_slaq.core.policies import POLICIES

WORKERS = {"w0": 2, "w1": 2, "w2": 4}
every_policy = pytest.mark.parametrize("policy", POLICIES)


def geometric(start: float = 1.0, rate: float = 0.8, floor: float = 0.0):
    return lambda k: floor + start * rate**k


CURVES = {"young": geometric(), "old": geometric(rate=0.5, floor=0.1), "slow": geometric(rate=0.95)}
AGES = {"young": 5, "old": 40, "slow": 12}


def trained(policy="max-total", *, scale=1.0, shift=0.0, **settings) -> Engine:
    """An engine whose jobs cost 1 core-second an iteration and run 8 tasks at once."""
    engine = Engine(policy, **settings)
    for name in CURVES:
        engine.add_job(name, 0.0)
    for name in CURVES:
        losses = [scale * CURVES[name](k) + shift for k in range(AGES[name])]
        train(engine, name, losses, seconds=0.125, tasks=8)
    return engine


def shares(engine: Engine) -> dict[str, float]:
    return {name: grant.share for name, grant in engine.grants.items()}


def test_max_min_helps_the_highest_loss_whatever_the_normalizer():
    """One that falls by little at a time has more largest changes left than one that fell once."""
    for normalizer in ("range", "largest-change"):
        engine = Engine("max-min", normalizer=normalizer)
        for rate in (0.99, 0.9, 0.6):
            engine.add_job(str(rate), 0.0)
            train(engine, str(rate), [1 + 5 * rate**k for k in range(12)], seconds=0.125, tasks=16)
        engine.reallocate({"w": 16}, 12.0)
        found = shares(engine)
        assert found["0.99"] >= found["0.9"] >= found["0.6"] and found["0.99"] > found["0.6"]


@every_policy
def test_grants_fit_the_workers(policy):
    engine = trained(policy)
    changes = engine.reallocate(WORKERS, 1.0)
    assert set(changes) == set(engine.grants) == set(CURVES)
    assert sum(shares(engine).values()) <= 8 + 1e-9
    used = dict.fromkeys(WORKERS, 0.0)
    for grant in engine.grants.values():
        assert grant.share >= 0
        assert sum(grant.workers.values()) == pytest.approx(grant.share)
        for worker, threads in grant.workers.items():
            used[worker] += threads
    assert all(used[worker] <= WORKERS[worker] + 1e-9 for worker in WORKERS)


@pytest.mark.parametrize(("scale", "shift"), [(1e3, -1e4), (1e-3, -1e-2)])
@every_policy
def test_scaling_or_shifting_losses_changes_no_decision(policy, scale, shift):
    before = trained(policy, shift=-10.0)  # losses that zero does not bound
    after = trained(policy, scale=scale, shift=shift)
    before.reallocate(WORKERS, 1.0)
    after.reallocate(WORKERS, 1.0)
    for name, grant in before.grants.items():
        assert after.grants[name].share == pytest.approx(grant.share, abs=1e-3)
        assert after.grants[name].normalized == pytest.approx(grant.normalized, abs=1e-3)


def test_threads_go_to_the_job_whose_loss_falls_most():
    engine = trained("max-total", epoch=1.0, floor=0.0)
    engine.reallocate(WORKERS, 1.0)
    assert engine.grants["young"].share > engine.grants["old"].share
    assert engine.grants["young"].index > engine.grants["old"].index
    assert engine.grants["young"].predicted > engine.grants["old"].predicted
    assert engine.grants["old"].normalized < 0.01 < engine.grants["young"].normalized < 1


def test_a_job_of_actors_is_not_said_to_have_too_few_reports():
    engine = Engine()
    engine.add_job("actors", 0.0)
    train(engine, "actors", [0.9**k for k in range(15)], tasks=0)
    why = engine.reallocate(WORKERS, 15.0)["actors"].why
    assert why.startswith("no task of it has ended between its reports")


def test_a_job_near_the_end_that_it_told_gains_little_and_one_beyond_it_is_as_others():
    def share(max_iter):
        engine = trained(floor=0.0)
        engine.set_max_iter("slow", max_iter)
        engine.reallocate(WORKERS, 1.0)
        return engine.grants["slow"].share, engine.grants["slow"].normalized

    far, near, last = share(500), share(30), share(13)
    unknown, beyond = share(None), share(AGES["slow"])
    assert last[1] < near[1] < far[1]
    assert far == pytest.approx(unknown) and beyond == unknown
    assert 0 < last[1] < 0.1


@every_policy
def test_a_new_job_is_explored_with_a_fair_share(policy):
    engine = trained(policy)
    engine.add_job("new", 1.0)
    engine.reallocate(WORKERS, 1.0)
    if policy in ("fifo", "las", "srtf"):  # these do not explore: it has its turn
        assert sum(shares(engine).values()) == pytest.approx(8.0)
    elif policy == "first-to-target":  # it is before those that are at their target
        assert engine.grants["new"].index > engine.grants["old"].index
    else:
        assert engine.grants["new"].share >= 1.0
    assert math.isnan(engine.grants["new"].predicted)
    assert math.isnan(engine.grants["new"].loss)
    assert engine.grants["new"].normalized == 1.0


@every_policy
def test_what_never_reports_gets_a_fair_share_until_its_tasks_tell(policy):
    engine = trained(policy)
    engine.add_job("other", 1.0, reports=False)
    engine.reallocate(WORKERS, 1.0)
    if policy in ("fifo", "las", "srtf"):  # it has its turn
        assert sum(shares(engine).values()) == pytest.approx(8.0)
    else:
        assert engine.grants["other"].share == pytest.approx(2.0, abs=0.5)
    assert "reported no loss" in engine.grants["other"].why


@given(st.integers(1, 8), st.integers(1, 8))
def test_whole_waves_do_not_go_below_a_floor(width, floor):
    engine = Engine("max-total")
    engine.add_job("a", 0.0, min_share=floor, max_share=floor)
    train(engine, "a", [0.8**k for k in range(6)], seconds=0.1, at_once=width, tasks=width)
    engine.reallocate(WORKERS, 1.0)
    assert engine.grants["a"].share >= min(floor, width) - 1e-9


def test_threads_between_two_wave_counts_are_left_to_others():
    engine = Engine("max-total")
    engine.add_job("a", 0.0, max_share=7)
    train(engine, "a", [0.8**k for k in range(6)], seconds=0.1, tasks=8)
    engine.reallocate(WORKERS, 1.0)
    assert engine.grants["a"].share == 4  # 8 tasks on 7 threads take two waves, as on 4


def test_a_job_gets_no_more_threads_than_its_tasks_can_use():
    engine = Engine("fair")
    for name, width in (("narrow", 1), ("wide", 7)):
        engine.add_job(name, 0.0)
        train(engine, name, [1.0, 1 / 2, 1 / 3], at_once=width)
    engine.reallocate(WORKERS, 1.0)
    assert shares(engine) == pytest.approx({"narrow": 1.0, "wide": 7.0})


def test_workers_that_a_job_may_not_use_are_not_its_capacity():
    engine = trained("fair")
    engine.reallocate(WORKERS, 1.0, eligible={"young": ["w0"], "old": ["gone"]})
    assert engine.grants["young"].share <= 2
    assert set(engine.grants["young"].workers) <= {"w0"}
    assert engine.grants["old"].share == 0
    assert engine.grants["old"].workers == {}
    assert engine.grants["slow"].share >= 4


def test_jobs_go_to_the_workers_that_hold_their_data():
    engine = Engine("fair")
    for name in "ab":
        engine.add_job(name, 0.0)
    data = {"a": {"w1": 1e9}, "b": {"w0": 1e9}}
    engine.reallocate({"w0": 2, "w1": 2}, 1.0, affinity=data)
    assert set(engine.grants["a"].workers) == {"w1"}
    assert set(engine.grants["b"].workers) == {"w0"}


@every_policy
def test_nothing_changes_when_nothing_happened(policy):
    engine = trained(policy, floor=0.0)
    engine.reallocate(WORKERS, 1.0)
    before = shares(engine)
    changes = engine.reallocate(WORKERS, 2.0)
    if policy == "finish-time-fair":  # all have waited for longer
        assert shares(engine) == before
    else:
        assert changes == {}


def test_only_changes_are_returned():
    engine = trained("fair", floor=0.0)
    engine.reallocate(WORKERS, 1.0)
    engine.report("young", CURVES["young"](5), 2.0)
    changes = engine.reallocate(WORKERS, 2.0)
    assert "young" in changes
    assert changes["young"].iteration == AGES["young"] + 1
    assert engine.grants["young"] == changes["young"]
    assert "old" not in changes
    assert list(changes) == [name for name in sorted(CURVES) if name in changes]
    assert len(changes) == len(list(changes))
    with pytest.raises(KeyError, match="old"):
        changes["old"]


def test_changes_stay_as_they_were_told():
    engine = trained()
    changes = engine.reallocate(WORKERS, 1.0)
    young = changes["young"]
    engine.remove_job("young", 2.0)
    engine.reallocate(WORKERS, 2.0)
    assert set(changes) == set(CURVES)
    assert changes["young"] == young


@every_policy
def test_without_workers_or_jobs_nothing_is_granted(policy):
    assert Engine(policy).reallocate(WORKERS, 1.0) == {}
    engine = trained(policy)
    engine.reallocate({}, 1.0)
    assert all(grant.share == 0 and not grant.workers for grant in engine.grants.values())


def two_jobs(left, max_slowdown, of_a=None):
    """An engine with jobs a and b of some core-seconds; a may have a factor of its own."""
    engine = Engine("max-total", max_slowdown=max_slowdown)
    for name, own in (("a", of_a), ("b", None)):
        engine.add_job(name, 0.0, max_slowdown=own)
        engine.observe_left(name, left)
    return engine


def run(engine, first, last, **used):
    """Let seconds pass, in each of which jobs have tasks, and used some core-seconds."""
    for now in range(first, last + 1):
        for name in engine.jobs:
            if name in used:
                engine.observe_task(name, used[name])
            engine.observe_demand(name, 100)
        engine.reallocate(WORKERS, float(now))


@pytest.mark.parametrize("max_slowdown", [1.0, 2.0, 4.0, math.inf])
def test_a_job_of_known_length_is_owed_what_it_would_have_in_its_fair_time_by_the_factor(
    max_slowdown,
):
    engine = two_jobs(1e6, max_slowdown)
    run(engine, 0, 0)
    run(engine, 1, 20, b=8.0)
    assert engine.grants["b"].tokens == 0
    assert engine.grants["a"].tokens == pytest.approx(4.0 * 20.0 / max_slowdown, rel=0.02)
    assert ("behind its promise" in engine.grants["a"].why) == (max_slowdown < math.inf)


def test_a_job_of_its_own_factor_is_owed_by_it():
    engine = two_jobs(1e6, max_slowdown=2.0, of_a=1.0)
    run(engine, 1, 20)
    one, two = (engine.grants[name].tokens for name in "ab")
    assert one > 1.8 * two
    engine.set_job("a", max_slowdown=2.0)
    engine.reallocate(WORKERS, 20.0)
    assert engine.grants["a"].tokens == pytest.approx(two)


def test_a_job_that_ended_early_goes_on_in_the_fair_world():
    # Otherwise the others would be owed more than a fair scheduler gives them.
    engine = two_jobs(100.0, 1.0)
    run(engine, 1, 10, b=8.0)
    engine.remove_job("b", 10.0)  # it had 80, of which 40 were its own
    before = engine.grants["a"].tokens
    run(engine, 11, 15)
    assert engine.grants["a"].tokens == pytest.approx(before + 5 * 4.0, rel=0.05)


def test_a_job_is_owed_no_more_than_its_whole_work():
    engine = two_jobs(10.0, 1.0)
    run(engine, 1, 20)
    assert engine.grants["a"].tokens == pytest.approx(10.0)


def test_a_job_of_unknown_length_behind_its_credit_floor_gets_tokens():
    engine = Engine("max-total", floor=0.5)
    for name in "ab":
        engine.add_job(name, 0.0)
        engine.observe_demand(name, 100)
    engine.reallocate(WORKERS, 0.0)
    assert engine.grants["a"].tokens == engine.grants["b"].tokens == 0
    engine.observe_task("a", 40.0)
    engine.report("a", 1.0, 9.0)
    engine.reallocate(WORKERS, 10.0)  # each was entitled to 40 core-seconds
    assert engine.grants["a"].tokens == 0
    assert engine.grants["b"].tokens == pytest.approx(20.0)
    assert "core-seconds behind its promise" in engine.grants["b"].why


def test_a_job_that_has_not_reported_for_two_epochs_goes_by_its_tasks_until_it_does():
    engine = trained("max-total")
    engine.add_job("silent", 2.0)
    engine.observe_demand("silent", 100)
    engine.reallocate(WORKERS, 2.0)
    indices = {name: grant.index for name, grant in engine.grants.items()}
    assert max(indices, key=indices.get) == "silent"
    fair = engine.jobs["silent"].weight * sum(WORKERS.values()) / len(engine.jobs)
    engine.observe_task("silent", 2.1 * fair)
    engine.reallocate(WORKERS, 3.0)
    engine.observe_left("silent", 100.0)
    engine.reallocate(WORKERS, 3.0)
    assert 0 < engine.grants["silent"].index < indices["silent"]
    assert engine.grants["silent"].normalized < 1.0
    assert "no loss" in engine.grants["silent"].why
    engine.report("silent", 1.0, 3.5)
    engine.reallocate(WORKERS, 4.0)
    assert engine.grants["silent"].index > 0


def test_what_a_job_without_a_loss_was_lent_comes_off_its_share():
    engine = trained("max-total")
    engine.add_job("other", 2.0, reports=False)
    engine.observe_demand("other", 100)
    engine.reallocate(WORKERS, 2.0)
    engine.reallocate(WORKERS, 3.0)
    share = engine.grants["other"].share
    due = engine.floor * share  # per second, as for jobs that report
    assert engine.grants["other"].tokens == pytest.approx(due)
    engine.observe_task("other", 1.5 * due)
    engine.reallocate(WORKERS, 4.0)
    assert engine.grants["other"].tokens == pytest.approx(0.5 * due)


def test_terms_are_those_of_the_grants():
    engine = trained("max-total")
    first = engine.reallocate(WORKERS, 20.0)
    assert {t.job: t.workers for t in first.terms()} == {n: g.workers for n, g in first.items()}
    engine.add_job("new", 20.5)
    engine.observe_demand("new", 100)
    changes = engine.reallocate(WORKERS, 21.0)
    held = {name: grant.workers for name, grant in first.items()}
    for terms in changes.terms():
        grant = engine.grants[terms.job]
        assert (terms.share, terms.index, terms.tokens, terms.most) == (
            (grant.share, grant.index, grant.tokens, grant.most)
        )
        workers = held[terms.job] if terms.workers is None else terms.workers
        assert workers == grant.workers
    assert {t.job for t in changes.terms()} == set(changes)
    assert {t.job: t for t in changes.terms()}["new"].workers is not None


def test_only_work_that_was_there_to_do_is_entitled():
    engine = Engine("max-total", floor=0.5)
    for name, demand in (("idle", 0), ("narrow", 1), ("wide", 100)):
        engine.add_job(name, 0.0)
        engine.observe_demand(name, demand)
    engine.reallocate(WORKERS, 0.0)
    engine.reallocate(WORKERS, 10.0)
    idle, narrow, wide = engine.jobs.column("entitled", ["idle", "narrow", "wide"])
    assert idle == 0
    assert narrow == pytest.approx(10.0)
    assert wide >= 40.0


def test_a_clock_that_goes_back_takes_nothing_away():
    engine = trained("fair")
    engine.reallocate(WORKERS, 10.0)
    before = engine.jobs.column("entitled", list(CURVES)).tolist()
    engine.reallocate(WORKERS, 5.0)
    assert engine.jobs.column("entitled", list(CURVES)).tolist() == before


def test_a_floor_in_threads_is_worth_an_epoch_of_tokens_not_granted_anew_at_every_decision():
    engine = Engine("max-total", epoch=2.0, floor=0.0)
    engine.add_job("a", 0.0, min_share=3)
    engine.add_job("b", 0.0)
    engine.reallocate(WORKERS, 1.0)
    assert engine.grants["a"].tokens == pytest.approx(6.0)
    assert engine.grants["b"].tokens == 0
    engine.observe_task("a", 5.0)
    engine.report("a", 1.0, 1.2)
    engine.reallocate(WORKERS, 1.5)  # as when a job comes amid an epoch
    assert engine.grants["a"].tokens == pytest.approx(6.0 - 5.0 + 0.5 * 3)
    engine.observe_task("a", 50.0)  # of which much was no floor's: it owes an epoch at most
    engine.reallocate(WORKERS, 2.0)
    assert engine.grants["a"].tokens == 0
    engine.reallocate(WORKERS, 9.0)
    assert engine.grants["a"].tokens == pytest.approx(6.0)


def test_refused_calls_leave_every_job_as_it_was():
    engine, twin = trained(), trained()
    for each in (engine, twin):
        each.reallocate(WORKERS, 1.0)
    for error, call in (
        (DuplicateJob, lambda e: e.add_job("young", 1.0)),
        (InvalidSetting, lambda e: e.add_job("new", 1.0, weight=0)),
        (InvalidSetting, lambda e: e.add_job("new", 1.0, weight=10**400)),
        (InvalidSetting, lambda e: e.add_job("new", 1.0, min_share=3, max_share=2)),
        (UnknownJob, lambda e: e.remove_job("new", 1.0)),
        (UnknownJob, lambda e: e.report("new", 1.0, 1.0)),
        (UnknownJob, lambda e: e.observe_task("new", 1.0)),
        (UnknownJob, lambda e: e.observe_demand("new", 1)),
        (NonFiniteLoss, lambda e: e.report("young", "low", 1.0)),
        (NonFiniteLoss, lambda e: e.report("young", True, 1.0)),
    ):
        with pytest.raises(error):
            call(engine)
    assert engine.grants == twin.grants
    assert engine.reallocate(WORKERS, 2.0) == twin.reallocate(WORKERS, 2.0)


def test_a_removed_job_is_forgotten():
    engine = trained()
    engine.reallocate(WORKERS, 1.0)
    engine.remove_job("young", 2.0)
    assert set(engine.jobs) == set(engine.grants) == {"old", "slow"}
    engine.add_job("young", 3.0)
    assert "young" in engine.reallocate(WORKERS, 3.0)
    assert engine.grants["young"].iteration == 0
    assert engine.grants["young"].normalized == 1.0
    assert engine.jobs["young"].work == 0.0


ODD_LOSSES = {
    "none": [],
    "one": [1.0],
    "constant": [1.0] * 30,
    "rising": [float(k) for k in range(30)],
    "spiking": [1.0, 1e12, 1.0, 1e-12] * 8,
    "falling faster": [-(2.0**k) for k in range(30)],
    "extreme": [1e300, 1e-300] * 10,
}


@pytest.mark.parametrize("normalizer", ["range", "largest-change"])
@every_policy
def test_grants_are_finite_whatever_is_reported(policy, normalizer):
    engine = trained(policy, normalizer=normalizer)
    for name, losses in ODD_LOSSES.items():
        engine.add_job(name, 0.0)
        train(engine, name, losses, seconds=0.5, at_once=4)
    engine.reallocate(WORKERS, 1.0)
    for grant in engine.grants.values():
        assert math.isfinite(grant.share)
        assert not math.isnan(grant.index)
        assert 0 <= grant.normalized <= 1
        assert grant.tokens >= 0
    assert sum(shares(engine).values()) <= 8 + 1e-9


def test_a_job_that_moves_only_is_a_change():
    engine = trained("fair", floor=0.0)
    engine.reallocate({"w0": 8}, 1.0)
    changes = engine.reallocate({"w1": 8}, 2.0)
    assert set(changes) == set(CURVES)
    assert set(changes["old"].workers) == {"w1"}


@pytest.mark.parametrize("later", [{"w0": 2, "w1": 4}, {"w0": 2}, {"w0": 2, "w1": 2, "w2": 2}])
def test_workers_may_change_in_the_dict_of_the_caller(later):
    engine, workers = trained("fair", floor=0.0), {"w0": 2, "w1": 2}
    engine.reallocate(workers, 1.0)
    workers.clear()
    workers.update(later)
    engine.reallocate(workers, 2.0)
    assert sum(shares(engine).values()) == pytest.approx(sum(later.values()))
    assert {w for grant in engine.grants.values() for w in grant.workers} == set(later)


def strong(n: float) -> float:
    """Seconds of an iteration that is fastest on eight threads."""
    return 0.4 + 6.4 / n + 0.1 * n


def epochs(engine, cores: int, count: int, names: tuple[str, ...], start: float) -> list[dict]:
    """Run jobs under this law of running times; the shares of every epoch."""
    held, now = [], start
    for _ in range(count):
        engine.reallocate({"w": cores}, now)
        held.append(shares(engine))
        for name in (name for name in names if held[-1][name] > 0):
            threads = max(held[-1][name], 1.0)
            iterations = max(round(30.0 * min(held[-1][name], 1.0) / strong(threads)), 1)
            took = 30.0 / iterations
            for i in range(iterations):
                engine.observe_task(name, held[-1][name] * took, 1000)
                engine.report(name, 0.97 ** engine.jobs[name].iteration, now + (i + 1) * took)
            engine.observe_demand(name, 1000)
        now += 30.0
    return held


@pytest.mark.parametrize("policy", ["fair", "max-total", "max-min"])
def test_a_job_that_scales_badly_is_not_granted_beyond_its_optimum(policy):
    engine = Engine(policy, epoch=3.0, floor=0.0)  # jobs run on their shares only here
    for name in "ab":
        engine.add_job(name, 0.0)
    epochs(engine, 64, 4, ("a", "b"), 0.0)  # 32 threads each
    engine.add_job("c", 120.0)
    epochs(engine, 48, 8, ("a", "b", "c"), 120.0)
    last = epochs(engine, 64, 8, ("a", "b", "c"), 360.0)[-1]
    assert all(engine.jobs[name].scaled for name in "abc")
    assert max(last.values()) <= 12
    assert sum(last.values()) >= 15


def test_a_pause_keeps_threads_where_they_are_unless_others_value_them_clearly_more():
    kept = {}
    for pause in (0.0, 2.0):
        engine = trained("max-total", epoch=2.0, floor=0.0, move_pause=pause)
        for name in ("old", "slow"):
            engine.remove_job(name, 0.0)
        engine.reallocate(WORKERS, 1.0)
        assert engine.grants["young"].share == 8
        engine.add_job("new", 1.0)
        train(engine, "new", map(CURVES["young"], range(AGES["young"])), seconds=0.125, tasks=8)
        engine.reallocate(WORKERS, 2.0)
        kept[pause] = engine.grants["young"].share
    assert kept[2.0] > kept[0.0]


def test_a_pause_as_long_as_the_epoch_still_lets_a_new_job_start():
    engine = Engine("max-total", epoch=1.0, move_pause=5.0)
    engine.add_job("a", 0.0)
    train(engine, "a", [0.8**k for k in range(6)])
    engine.reallocate(WORKERS, 1.0)
    assert engine.grants["a"].share == pytest.approx(8)


def test_a_target_that_is_changed_is_the_asymptote_of_a_short_curve():
    def gain(first, then=None):
        engine = Engine("max-total")
        engine.add_job("a", 0.0, target=first)
        engine.observe_task("a", 1.0, 4)
        engine.report("a", 10.0, 1.0)
        if then is not None:
            engine.set_job("a", target=then)
        engine.report("a", 9.0, 2.0)
        engine.reallocate({"w": 4}, 3.0)
        return engine.forecaster.forecast(["a"]).reduction.tolist()

    assert gain(8.0, 1.0) == gain(1.0) != gain(8.0)
    engine = Engine("max-total")
    engine.add_job("a", 0.0, target=1.0)
    with pytest.raises(NonFiniteLoss, match="target"):
        engine.set_job("a", target=1e301, weight=2.0)
    assert engine.jobs["a"].settings["weight"] == 1.0
