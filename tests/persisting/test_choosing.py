"""What to persist: against brute force on small graphs, and as it is printed."""

import itertools

import numpy as np
import pytest

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.persisting.choosing import advise, choose, names_of, saved
from dask_slaq.persisting.table import lines_of


def layer(name, times, seconds, size, needs=(), elsewhere=0.0):
    """One layer of four keys."""
    return {
        "layer": name, "computed": 4 * times, "keys": 4, "seconds": seconds, "bytes": size,
        "needs": dict.fromkeys(needs, 1.0), "elsewhere": elsewhere,
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
    assert choose(CHAIN, 1000, {"hash"}) == {"hash"}
    assert choose(CHAIN, 50) == set()


def test_layers_of_one_partition_share_what_they_need():
    """Four layers, each of which needs another quarter."""
    quarters = [layer(f"q{k}", 3, 0.0, 1, elsewhere=3.0) for k in range(4)]
    for each in quarters:
        each["needs"] = {"all": 0.25}
    persisted = {each["layer"] for each in quarters}
    assert saved([layer("all", 3, 8.0, 10), *quarters], persisted) == pytest.approx(8.0)


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
    """Of all subsets that fit: never below 75 % of the best, and 95 % of it nearly always."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(200):
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
        assert best == 0.0 or chosen
    assert min(ratios) > 0.75
    assert np.mean(np.array(ratios) >= 0.95) > 0.95


def test_persisting_more_never_saves_less():
    rng = np.random.default_rng(1)
    for _ in range(100):
        layers = graph(rng)
        names = [each["layer"] for each in layers]
        some = {name for name in names if rng.random() < 0.4}
        more = {*some, rng.choice(names)}
        total = sum(each["seconds"] for each in layers)
        assert 0.0 <= saved(layers, some) <= saved(layers, more) + 1e-9 <= total + 2e-9


def test_names():
    token = "55e7afcbb633171860985bc228efcdd1"
    assert names_of(f"qr-{token}-q3") == (f"qr-{token}-q3", "qr-q3", "qr-55e7afcb-q3")
    assert names_of("local_update") == ("local_update",) * 3


def test_the_table_says_what_to_persist():
    counts = {"layers": CHAIN, "memory": 1000}
    lines = lines_of(advise(counts))
    rows = {words[0]: words[1:] for line in lines if (words := line.split())}
    assert rows["scale"] == ["3.0", "1.00", "25.00", "300", "B", "persist"]
    assert rows["hash"] == ["3.0", "20.00", "24.00", "400", "B"]
    assert any("Persist scale, read (400 B of 600 B): saves about 29.00 of" in x for x in lines)
    found = advise(counts, 1000, {"scale"})
    assert [each["layer"] for each in found["layers"] if each["persist"]] == ["hash", "read"]
    assert (found["bytes"], found["saves"]) == (500, pytest.approx(28.0))
    assert "No result that saves anything fits in 1 B." in lines_of(advise(counts, 1))
    with pytest.raises(InvalidSetting, match="no memory limit: give memory_limit"):
        advise({"layers": CHAIN})
