"""Check-lists for policies and predictors: ours pass them, yours must.

Each raises AssertionError with the rule that is broken and the seed that shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from dask_slaq.core.forecast import Forecast, Predictor, broken_forecast
from dask_slaq.core.policies import (
    ARRAYS,
    Allocation,
    Policy,
    Snapshot,
    broken_rule,
    traits_of,
    with_efficiency_cap,
)

__all__ = [
    "POLICY_RULES",
    "Curves",
    "check_policy",
    "check_predictor",
    "draw_snapshot",
]

#: Threads, and relative differences of indices, that count as equal.
CLOSE = 1e-7
MakePolicy = Callable[[], Policy]


class Curves:
    """Gains of jobs as functions of threads, which can be asked of some of the jobs."""

    def __init__(self, kind: str, size: Any, rate: Any) -> None:
        self.kind, self.size, self.rate = kind, size, rate

    def __call__(self, threads: Any) -> Any:
        """Return the gains (n_jobs,) of threads (n_jobs,)."""
        with np.errstate(invalid="ignore"):  # some sizes are not finite
            if self.kind == "straight":
                return self.size * np.minimum(threads * self.rate, 1)
            return self.size * -np.expm1(-threads * self.rate)

    def of(self, rows: Any) -> Curves:
        """Return the gains of the jobs at `rows`."""
        return Curves(self.kind, self.size[rows], self.rate[rows])


def draw_snapshot(
    seed: int, n_jobs: int | None = None, capacity: int | None = None, **fixed: Any
) -> Snapshot:
    """Return a snapshot of anything that a policy may meet; fields in `fixed` are not drawn."""
    rng = np.random.default_rng(seed)
    n_jobs = int(rng.integers(0, 9)) if n_jobs is None else n_jobs
    kind = rng.choice(["curved", "straight"])
    normalized = rng.choice([1.0, 0.5, 0.25, rng.uniform()], n_jobs)
    size = normalized * rng.choice([0.0, 0.1, 0.5, rng.uniform()], n_jobs)
    values = {
        "jobs": tuple(f"job-{i}" for i in rng.permutation(n_jobs)),
        "capacity": int(rng.integers(0, 40)) if capacity is None else capacity,
        "weight": rng.choice([0.5, 1.0, 2.0, 3.7], n_jobs),
        "floor": rng.choice([0.0, 0.0, 0.4, 2.0, 5.0], n_jobs),
        "cap": rng.choice([0.5, 2.0, 7.0, 7.5, np.inf], n_jobs),
        "known": rng.random(n_jobs) < 0.8,
        "normalized": normalized,
        "gain": Curves(str(kind), size, rng.choice([0.01, 0.125, rng.uniform()], n_jobs)),
        "reporting": rng.random(n_jobs) < 0.9,
        "to_target": rng.choice([0.0, 3.0, rng.uniform(0, 99), np.inf, np.nan], n_jobs),
        "age": rng.choice([0.0, 3.0, rng.uniform(0, 99)], n_jobs),
        "attained": rng.choice([0.0, 3.0, rng.uniform(0, 999)], n_jobs),
        "to_end": rng.choice([0.0, 3.0, rng.uniform(0, 999), np.inf, np.nan], n_jobs),
        "efficient": rng.choice([1.0, 3.0, 20.0, np.inf], n_jobs),
    }
    return Snapshot(**{**values, **fixed})


def _keeps_capacity_floors_and_caps(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed)
    _keeps_all(snapshot, make()(snapshot))


def _threads_of_little_use_go_only_where_none_is_of_more(make: MakePolicy, seed: int) -> None:
    snapshot, policy = draw_snapshot(seed), make()
    if not traits_of(policy).follows_losses:
        return
    found = with_efficiency_cap(policy, snapshot)
    _keeps_all(snapshot, found)
    well = np.minimum(np.maximum(snapshot.efficient, snapshot.floor), snapshot.cap)
    if (found.share > well + CLOSE).any():
        assert (found.share >= np.minimum(well, snapshot.capacity) - CLOSE).all()


def _order_of_jobs_does_not_matter(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed)
    order = np.random.default_rng(seed + 1).permutation(len(snapshot.jobs))
    here, there = make()(snapshot), make()(snapshot.of(order))
    np.testing.assert_allclose(there.share, here.share[order], atol=CLOSE)
    np.testing.assert_allclose(there.index, here.index[order], rtol=1e-6, atol=1e-12)


def _more_weight_never_gets_less(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed)
    before = make()(snapshot)
    for i in range(len(snapshot.jobs)):
        weight = snapshot.weight.copy()
        weight[i] *= 1.7
        after = make()(replace(snapshot, weight=weight))
        assert after.share[i] >= before.share[i] - CLOSE


def _same_snapshot_same_answer(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed)
    before = {array: getattr(snapshot, array).copy() for array in ARRAYS}
    policy = make()
    for again in (policy(snapshot), make()(snapshot)):
        first = policy(snapshot)
        assert first.share.tolist() == again.share.tolist()
        assert first.index.tolist() == again.index.tolist()
    for array, values in before.items():
        np.testing.assert_array_equal(getattr(snapshot, array), values)


def _gains_that_cannot_be_asked_of_some_jobs_give_the_same(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed, n_jobs=30, capacity=90)
    whole = replace(snapshot, gain=lambda threads: snapshot.gain(threads))
    here, there = make()(snapshot), make()(whole)
    assert here.share.tolist() == there.share.tolist()
    assert here.index.tolist() == there.index.tolist()


def _one_job_gets_all_it_can_use(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed, n_jobs=1, capacity=6, cap=np.array([4.0]))
    assert make()(snapshot).share.tolist() == [4]


def _a_gain_that_is_not_finite_gets_a_fair_share(make: MakePolicy, seed: int) -> None:
    snapshot = draw_snapshot(seed, n_jobs=5, capacity=20)
    gain: Any = snapshot.gain
    size, unknown = gain.size.copy(), snapshot.known.copy()
    size[2], unknown[2] = (np.nan, np.inf, -np.inf)[seed % 3], False
    sick = replace(snapshot, gain=Curves(gain.kind, size, gain.rate))
    found, want = make()(sick), make()(replace(snapshot, known=unknown))
    _keeps_all(sick, found)
    np.testing.assert_allclose(found.share, want.share, atol=CLOSE)
    np.testing.assert_allclose(found.index, want.index, rtol=1e-6, atol=1e-12)


#: Rules of every policy by name; each takes a function that makes the policy, and a seed.
POLICY_RULES: dict[str, Callable[[MakePolicy, int], None]] = {
    rule.__name__.strip("_").replace("_", " "): rule
    for rule in (
        _keeps_capacity_floors_and_caps,
        _threads_of_little_use_go_only_where_none_is_of_more,
        _order_of_jobs_does_not_matter,
        _more_weight_never_gets_less,
        _same_snapshot_same_answer,
        _gains_that_cannot_be_asked_of_some_jobs_give_the_same,
        _one_job_gets_all_it_can_use,
        _a_gain_that_is_not_finite_gets_a_fair_share,
    )
}


def check_policy(make: MakePolicy, examples: int = 100, seed: int = 0) -> None:
    """Check that a policy keeps the rules of all policies, in drawn snapshots.

    Parameters
    ----------
    make : callable
        Returns a new policy: its class, if that needs no arguments.
    examples : int
        Number of snapshots per rule.
    seed : int
        Seed of the first one.

    Raises
    ------
    AssertionError
        A rule is broken.

    Examples
    --------
    >>> from dask_slaq.policies import policy
    >>> check_policy(lambda: policy("fair"), examples=3)
    """
    assert isinstance(getattr(make(), "name", None), str), "a policy has a name"
    for name, rule in POLICY_RULES.items():
        for number in range(seed, seed + examples):
            try:
                rule(make, number)
            except Exception as error:
                raise AssertionError(f"{name} (seed {number}): {error}") from error


def check_predictor(
    make: Callable[[], Predictor], examples: int = 20, seed: int = 0, reports: int = 40
) -> None:
    """Check that a predictor follows jobs, and that its forecasts are such as `Forecast` says.

    Parameters
    ----------
    make : callable
        Returns a new predictor: its class, if that needs no arguments.
    examples : int
        Number of drawn sets of losses: falling, noisy, rising, constant and huge ones.
    seed : int
        Seed of the first one.
    reports : int
        Number of reports of each job.

    Raises
    ------
    AssertionError
        A rule is broken.
    """
    for number in range(seed, seed + examples):
        try:
            _follow(make(), np.random.default_rng(number), reports)
        except Exception as error:
            raise AssertionError(f"a forecast (seed {number}): {error}") from error


def _follow(predictor: Predictor, rng: np.random.Generator, reports: int) -> None:
    at = np.arange(reports)
    falling = rng.uniform(0.5, 5) * np.exp(-at / rng.uniform(2, 30))
    losses = {
        "falls": falling,
        "noisy": falling + rng.normal(0, 0.1, reports),
        "rises": at * rng.uniform(0.1, 2),
        "constant": np.full(reports, rng.uniform(-1, 1)),
        "huge": falling * 1e290,
    }
    assert _checked(predictor, [], 0).n_reports.tolist() == []
    for name in losses:
        predictor.add(name, target=0.1 if name == "falls" else None)
    _checked(predictor, list(losses), 0)
    for count in range(1, reports + 1):
        for name, values in losses.items():
            predictor.report(name, float(values[count - 1]))
        if count <= 5 or count == reports:
            _checked(predictor, list(losses), count)
    predictor.remove("rises")
    del losses["rises"]
    _checked(predictor, list(losses), reports)


def _checked(predictor: Predictor, names: list[str], count: int) -> Forecast:
    """Return the forecasts of jobs with `count` reports each, which are as `Forecast` says."""
    predictor.fit()
    found = predictor.forecast(names)
    wrong = broken_forecast(found, len(names))
    assert wrong is None, wrong
    assert (np.isnan(found.start) == (count == 0)).all(), "start is nan before the first report"
    return found


def _keeps_all(snapshot: Snapshot, allocation: Allocation) -> None:
    wrong = broken_rule(snapshot, allocation)
    assert wrong is None, wrong
