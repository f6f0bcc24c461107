"""Placement always keeps its invariants, and prefers worker sets that change little."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.placement import Placement, Workers, packing, place_all
from dask_slaq.core.placement.choose_sets import bytes_of, numbered

CLOSE = 1e-7
seeds = st.integers(0, 2**32 - 1)


def place(shares, workers, previous=None, *, eligible=None, affinity=None):
    """Sets of the jobs by name, from shares and the sets of before by name."""
    jobs, before = sorted(shares), None
    if previous is not None:
        names, addresses = sorted(previous), sorted({w for held in previous.values() for w in held})
        entries = bytes_of(previous, names, numbered(addresses))
        entries = packing.joined([entries], len(addresses))
        before = Placement(names, addresses, entries, np.zeros(len(names), bool))
    found = place_jobs(jobs, [shares[job] for job in jobs], workers, before, eligible, affinity)
    sets = sets_of(found)
    return {job: sets[job] for job in shares}


def place_jobs(jobs, share, workers, previous=None, eligible=None, affinity=None):
    share = np.array(share, float)
    return place_all(jobs, share, Workers.of(workers), previous, eligible or {}, affinity or {})


def sets_of(placement):
    return {job: placement.at(i) for i, job in enumerate(placement.jobs)}


def draw_workers(rng, most=9, threads=(1, 1, 2, 4)):
    return {f"w{i}": int(rng.choice(threads)) for i in rng.permutation(int(rng.integers(1, most)))}


def draw_shares(rng, workers, fill=1.0, whole=False):
    """Shares of a few jobs that sum to at most a part of the threads."""
    n_jobs, capacity = int(rng.integers(1, 9)), sum(workers.values())
    share = rng.dirichlet(np.full(n_jobs, 0.7)) * capacity * fill
    kind = "whole" if whole else rng.choice(["whole", "halves", "any"])
    share = {"whole": np.floor(share), "halves": np.floor(2 * share) / 2, "any": share}[kind]
    share[rng.random(n_jobs) < 0.1] = 0
    return {f"job-{i}": float(share[i]) for i in rng.permutation(n_jobs)}


def draw_eligible(rng, shares, workers):
    names = sorted(workers)
    some = [set(names[: int(rng.integers(0, len(names) + 1))]), set(names[1:]), {*names, "gone"}]
    return {job: some[int(rng.integers(3))] for job in shares if rng.random() < 0.4}


def draw_affinity(rng, shares, workers):
    return {
        job: {worker: float(rng.integers(1, 4)) for worker in workers if rng.random() < 0.3}
        for job in shares
        if rng.random() < 0.6
    }


def used(sets):
    threads = {}
    for held in sets.values():
        for worker, n in held.items():
            threads[worker] = threads.get(worker, 0.0) + n
    return threads


def moves(sets, previous):
    """Workers that came new to a job."""
    return sum(len(held.keys() - previous.get(job, {}).keys()) for job, held in sets.items())


def shuffled(rng, mapping):
    keys = list(mapping)
    return {keys[i]: mapping[keys[i]] for i in rng.permutation(len(keys))}


def check(sets, shares, workers, eligible=None):
    """What every placement keeps."""
    assert list(sets) == list(shares)
    for worker, threads in used(sets).items():
        assert threads <= workers[worker] + CLOSE
    for job, held in sets.items():
        mine = set((eligible or {}).get(job, workers)) & workers.keys()
        assert held.keys() <= mine
        assert all(threads > 0 for threads in held.values())
        assert sum(held.values()) <= shares[job] + CLOSE
        assert bool(held) == (shares[job] > 0 and bool(mine))


@given(seed=seeds)
def test_keeps_threads_and_eligible_workers_and_gives_no_empty_set(seed):
    rng = np.random.default_rng(seed)
    before, workers = draw_workers(rng), draw_workers(rng)
    previous = place(draw_shares(rng, before), before)
    shares = draw_shares(rng, workers, fill=rng.choice([0.5, 1.0, 1.3]))
    eligible = draw_eligible(rng, shares, workers)
    affinity = draw_affinity(rng, shares, workers)
    sets = place(shares, workers, previous, eligible=eligible, affinity=affinity)
    check(sets, shares, workers, eligible)


@given(seed=seeds)
def test_order_of_the_input_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    workers = draw_workers(rng)
    previous = place(draw_shares(rng, workers), workers)
    shares = draw_shares(rng, workers)
    eligible = draw_eligible(rng, shares, workers)
    affinity = draw_affinity(rng, shares, workers)
    here = place(shares, workers, previous, eligible=eligible, affinity=affinity)
    there = place(
        shuffled(rng, shares),
        shuffled(rng, workers),
        {job: shuffled(rng, held) for job, held in shuffled(rng, previous).items()},
        eligible={job: sorted(names) for job, names in shuffled(rng, eligible).items()},
        affinity={job: shuffled(rng, near) for job, near in affinity.items()},
    )
    assert there == here


@given(seed=seeds)
def test_nothing_moves_when_nothing_changed(seed):
    rng = np.random.default_rng(seed)
    workers = draw_workers(rng)
    shares = draw_shares(rng, workers)
    sets = place(shares, workers)
    lure = draw_affinity(rng, shares, workers)
    assert place(shares, workers, sets, affinity=lure) == sets


@given(seed=seeds)
def test_a_job_whose_share_is_the_same_stays_while_others_change(seed):
    rng = np.random.default_rng(seed)
    workers = draw_workers(rng)
    first = draw_shares(rng, workers)
    sets = place(first, workers)
    second = {job: share * rng.choice([0, 0.5, 1]) for job, share in first.items()}
    second["job-new"] = sum(first.values()) - sum(second.values())
    after = place(second, workers, sets)
    for job in first:
        if second[job] == first[job]:
            assert after[job] == sets[job]


@given(seed=seeds)
def test_moves_as_few_workers_as_can_be(seed):
    rng = np.random.default_rng(seed)
    before = draw_workers(rng, most=20, threads=[1])
    workers = draw_workers(rng, most=20, threads=[1])
    previous = place(draw_shares(rng, before, whole=True), before)
    shares = draw_shares(rng, workers, whole=True)
    kept = {job: len(held.keys() & workers.keys()) for job, held in previous.items()}
    fewest = sum(max(0, n - kept.get(job, 0)) for job, n in shares.items())
    affinity = draw_affinity(rng, shares, workers)
    assert moves(place(shares, workers, previous, affinity=affinity), previous) == fewest


@given(seed=seeds)
def test_whole_threads_are_not_torn(seed):
    rng = np.random.default_rng(seed)
    workers = draw_workers(rng, most=20, threads=[1])
    shares = draw_shares(rng, workers)
    for job, held in place(shares, workers).items():
        whole = sum(threads > 1 - CLOSE for threads in held.values())
        assert whole == int(shares[job] + CLOSE)


THREE, TWO = {"w1": 1, "w2": 1, "w3": 1}, {"w1": 1, "w2": 1}
GPUS = {"gpu1": 1, "gpu2": 1, "w1": 1}
NARROW = {"a": ["gpu1"], "b": ["gpu2"], "c": ["gpu1", "gpu2"]}


@pytest.mark.parametrize(
    ("shares", "workers", "given", "expected"),
    [
        ({"b": 1, "a": 1}, THREE, {}, {"b": {"w2": 1}, "a": {"w1": 1}}),
        (
            {"a": 1, "b": 1}, TWO, {"affinity": {"a": {"w2": 1e3}, "b": {"w2": 1e6}}},
            {"a": {"w1": 1}, "b": {"w2": 1}},
        ),
        ({"a": 3}, {"w1": 4, "w2": 4}, {"previous": {"a": {"w2": 1}}}, {"a": {"w2": 3}}),
        (
            {"a": 1, "b": 1}, {"gpu": 1, "w1": 1},
            {"previous": {"a": {"gpu": 1}}, "eligible": {"b": ["gpu"]}},
            {"a": {"w1": 1}, "b": {"gpu": 1}},
        ),
        (
            {"a": 1, "b": 1, "c": 1}, GPUS, {"eligible": NARROW},
            {"a": {"gpu1": 0.5}, "b": {"gpu2": 1}, "c": {"gpu1": 0.5}},
        ),
        ({"a": 1}, {"w1": 1}, {"eligible": {"a": ["gpu"]}}, {"a": {}}),
        ({"a": 1, "b": 0}, {}, {"previous": {"a": {"w1": 1}}}, {"a": {}, "b": {}}),
        ({"a": 1, "b": 0}, {"w1": 0}, {"previous": {"a": {"w1": 1}}}, {"a": {}, "b": {}}),
    ],
    ids=[
        "ties go by address", "the job with more bytes gets the worker",
        "a job grows where it is before it spreads", "one with fewer workers takes its place",
        "a job shares the workers that narrower jobs took", "no worker is eligible",
        "no worker", "no thread",
    ],
)  # fmt: skip
def test_jobs_are_placed(shares, workers, given, expected):
    assert place(shares, workers, **given) == expected


def test_fractions_overlap():
    shares = dict.fromkeys("abcdef", 0.5)
    sets = place(shares, {"w1": 1, "w2": 1, "w3": 1})
    assert all(list(held.values()) == [0.5] for held in sets.values())
    assert used(sets) == {"w1": 1, "w2": 1, "w3": 1}


def test_a_fraction_that_fits_nowhere_is_spread():
    sets = place({"a": 2 / 3, "b": 2 / 3, "c": 2 / 3}, {"w1": 1, "w2": 1})
    assert sorted(len(held) for held in sets.values()) == [1, 1, 2]


def test_a_fraction_goes_to_the_tightest_room():
    sets = place({"a": 0.7, "b": 1.0, "c": 0.3}, {"w1": 1, "w2": 1, "w3": 1})
    assert sets["a"].keys() == sets["c"].keys()


def test_grows_towards_its_bytes():
    affinity = {"a": {"w3": 1e6, "w2": 1e3}}
    workers = {"w1": 1, "w2": 1, "w3": 1}
    assert place({"a": 2}, workers, affinity=affinity)["a"].keys() == {"w2", "w3"}
    assert place({"a": 0.5}, workers, affinity=affinity)["a"].keys() == {"w3"}


def test_shrinks_by_fractions_then_by_fewest_bytes():
    previous = {"a": {"w1": 1, "w2": 1, "w3": 0.5}}
    workers = {"w1": 1, "w2": 1, "w3": 1}
    assert place({"a": 2}, workers, previous)["a"].keys() == {"w1", "w2"}
    assert place({"a": 1}, workers, previous, affinity={"a": {"w2": 9}})["a"].keys() == {"w2"}


def test_growth_spares_the_fractions_of_others():
    workers = {"w1": 1, "w2": 1, "w3": 1}
    previous = {"a": {"w1": 0.5}}
    assert place({"a": 0.6, "b": 2}, workers, previous)["a"].keys() == {"w1"}


@given(seed=seeds)
def test_a_job_that_names_all_workers_is_like_one_that_names_none(seed):
    rng = np.random.default_rng(seed)
    workers = draw_workers(rng)
    previous = place(draw_shares(rng, workers), workers)
    shares = draw_shares(rng, workers)
    named = {job: list(workers) for job in shares if rng.random() < 0.5}
    want = place(shares, workers, previous)
    assert place(shares, workers, previous, eligible=named) == want


def test_shares_over_the_capacity_are_scaled():
    sets = place({"a": 4, "b": 2}, {"w1": 2, "w2": 1})
    assert {job: sum(held.values()) for job, held in sets.items()} == {"a": 2, "b": 1}


def test_the_smallest_share_has_a_worker():
    sets = place({"a": 1, "b": 1e-15}, {"w1": 1})
    assert sets["b"].keys() == {"w1"}


# All jobs at once


def draw_epochs(seed, n_jobs, n_workers, kind, epochs=4):
    """Shares of many jobs that change by a tenth or so at each epoch, and the workers."""
    rng = np.random.default_rng(seed)
    workers = {f"w{i:03d}": int(rng.choice([1, 4, 16])) for i in range(n_workers)}
    size, capacity = rng.lognormal(0, 1, n_jobs), sum(workers.values())
    for _ in range(epochs):
        share = size * np.exp(0.1 * rng.standard_normal(n_jobs))
        share *= capacity / share.sum()
        yield (np.floor(share) if kind == "whole" else share), workers


@pytest.mark.parametrize("kind", ["whole", "any"])
@given(seed=seeds, n_jobs=st.integers(1, 120), n_workers=st.integers(1, 30))
def test_epoch_after_epoch(kind, seed, n_jobs, n_workers):
    jobs = [f"job-{i:03d}" for i in range(n_jobs)]
    last = None
    for share, workers in draw_epochs(seed, n_jobs, n_workers, kind):
        now = place_jobs(jobs, share, workers, last)
        shares = dict(zip(jobs, share.tolist(), strict=True))
        sets = sets_of(now)
        check(sets, shares, workers)
        for job, held in sets.items():
            assert sum(held.values()) == pytest.approx(shares[job], abs=CLOSE)
        last = now


@given(seed=seeds)
def test_kept_tells_whose_set_is_that_of_before(seed):
    rng = np.random.default_rng(seed)
    workers, then = draw_workers(rng), draw_workers(rng)
    first = draw_shares(rng, then)
    second = {job: share * rng.choice([0.5, 1, 1]) for job, share in first.items()}
    jobs = sorted(first)
    before = place_jobs(jobs, [first[job] for job in jobs], then)
    eligible = draw_eligible(rng, second, workers)
    now = place_jobs(jobs, [second[job] for job in jobs], workers, before, eligible)
    assert [now.at(i) == before.at(i) for i in range(len(jobs))] == now.kept.tolist()


def test_a_share_that_barely_changes_keeps_its_workers():
    workers = {"w1": 4, "w2": 4, "w3": 4}
    before = {"a": {"w1": 4, "w2": 1}, "b": {"w2": 2.5, "w3": 1}}
    for share in (4.7, 4.95, 5.2):
        sets = place({"a": share, "b": 3.5}, workers, before)
        assert sets["a"].keys() == before["a"].keys()
        assert sets["b"] == before["b"]


def test_a_fraction_in_pieces_stays_in_them():
    workers = {"w1": 1, "w2": 1, "w3": 1}
    before = {"a": {"w1": 0.4, "w2": 0.4}, "b": {"w1": 0.6}, "c": {"w2": 0.6}}
    sets = place({"a": 0.75, "b": 0.6, "c": 0.6}, workers, before)
    assert sets["a"].keys() == {"w1", "w2"}


def test_most_fractions_are_in_one_piece():
    share, workers = next(draw_epochs(5, 400, 40, "any"))
    jobs = [f"job-{i:03d}" for i in range(400)]
    small = {job for job, threads in zip(jobs, share.tolist(), strict=True) if threads < 1}
    sets = sets_of(place_jobs(jobs, share, workers))
    torn = sum(len(sets[job]) > 1 for job in small)
    assert len(small) > 200
    assert torn < 0.1 * len(small)
