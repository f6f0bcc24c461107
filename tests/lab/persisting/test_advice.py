"""What to persist: against brute force on small graphs, and as it is printed."""

import itertools

import numpy as np
import pytest

from dask_slaq.lab.persisting.advice import choose, saved


def layer(name, times, seconds, size, needs=(), elsewhere=0.0):
    """One layer of four keys."""
    return {
        "layer": name, "computed": 4 * times, "keys": 4, "seconds": seconds, "bytes": size,
        "needs": list(needs), "elsewhere": elsewhere,
    }  # fmt: skip


#: Text is read, hashed and scaled, three times; what is read is also counted, twice.
CHAIN = [
    layer("read", 5, 8.0, 100, elsewhere=2.0),
    layer("hash", 3, 20.0, 400, ["read"]),
    layer("scale", 3, 1.0, 300, ["hash"], elsewhere=3.0),
]


def test_a_late_result_makes_earlier_ones_needless():
    assert saved(CHAIN, ()) == 0.0
    # Of 4 repeats of `read` two are left, for those that count.
    assert saved(CHAIN, {"scale"}) == pytest.approx(1.0 + 20.0 + 4.0)
    assert saved(CHAIN, {"hash"}) == pytest.approx(20.0 + 4.0)
    assert saved(CHAIN, {"read"}) == pytest.approx(8.0)
    assert choose(CHAIN, 1000) == {"scale", "read"}
    assert choose(CHAIN, 399) == {"scale"}
    assert choose(CHAIN, 150) == {"read"}
    assert choose(CHAIN, 50) == set()


def test_layers_whose_names_make_a_cycle_are_counted():
    layers = [layer("a", 3, 4.0, 1, ["b"], 3.0), layer("b", 3, 4.0, 1, ["a"])]
    assert 0.0 < saved(layers, {"a"}) <= 8.0


def graph(rng):
    """Layers, each of which needs some that came before, as often as those that need it say."""
    n = rng.integers(2, 9)
    needs = {k: [j for j in range(k) if rng.random() < 1.5 / n] for k in range(n)}
    users = {j: [k for k in needs if j in needs[k]] for j in range(n)}
    times, elsewhere = {}, {}
    for k in reversed(range(n)):
        elsewhere[k] = rng.integers(0, 4) if users[k] else rng.integers(2, 6)
        times[k] = int(max(2, elsewhere[k] + max((times[u] for u in users[k]), default=0)))
    return [
        layer(str(k), times[k], rng.exponential(), int(rng.exponential(100)), map(str, needs[k]),
              float(elsewhere[k]))
        for k in range(n)
    ]  # fmt: skip


def test_the_choice_is_near_the_best():
    """Of all subsets that fit."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(100):
        layers = graph(rng)
        sizes = {each["layer"]: each["bytes"] for each in layers}
        limit = rng.uniform(0.1, 1.0) * sum(sizes.values())
        subsets = itertools.chain.from_iterable(
            itertools.combinations(sizes, n) for n in range(len(sizes) + 1)
        )
        best = max(saved(layers, some) for some in subsets if sum(map(sizes.get, some)) <= limit)
        chosen = choose(layers, limit)
        assert sum(map(sizes.get, chosen)) <= limit
        ratios.append(saved(layers, chosen) / best if best else 1.0)
    assert min(ratios) > 0.75 and np.mean(np.array(ratios) >= 0.95) > 0.95
