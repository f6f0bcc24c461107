"""Settings that `slaq2017` and `slaq2017-min` preset."""

import math

import pytest

from dask_slaq.core.engine import Engine

PAPER = {
    "predictor": "paper",
    "normalizer": "largest-change",
    "runtime": "linear",
    "max_slowdown": math.inf,
    "floor": 0.0,
}


@pytest.mark.parametrize("name", ["slaq2017", "slaq2017-min"])
def test_it_presets_what_was_left_at_its_default(name):
    engine = Engine(name)
    assert {setting: engine.in_force(setting) for setting in PAPER} == PAPER
    assert type(engine.forecaster).__name__ == "PaperPredictor"
    chosen = Engine(name, max_slowdown=3.0, floor=0.5)
    assert (chosen.in_force("max_slowdown"), chosen.in_force("floor")) == (3.0, 0.5)
    assert chosen.in_force("normalizer") == "largest-change"


def test_another_policy_later_has_the_settings_that_were_given():
    engine = Engine("slaq2017")
    engine.set_policy("first-to-target")
    assert (engine.in_force("max_slowdown"), engine.in_force("normalizer")) == (2.0, "range")


def test_one_by_one_the_settings_make_the_same_decisions():
    engines = [Engine("slaq2017"), Engine("slaq2017", **PAPER)]
    found = []
    for engine in engines:
        for job in ("a", "b", "c"):
            engine.add_job(job, now=0.0)
        for i in range(9):
            for job, rate in (("a", 0.9), ("b", 0.5), ("c", 0.99)):
                engine.observe_task(job, seconds=2.0, at_once=4)
                engine.report(job, rate**i, now=float(i))
        grants = engine.reallocate({"w": 12}, now=9.0)
        found.append({job: (grant.share, grant.tokens) for job, grant in grants.items()})
    assert found[0] == found[1]
    shares = {job: share for job, (share, _) in found[0].items()}
    assert shares["b"] == 1.0 and sum(shares.values()) == pytest.approx(12.0)
