"""Ready tasks of one kind, against a plain list of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.dispatch import ANY, Entry, Like
from dask_slaq.core.dispatch.ready import Ready

WORKERS = ("a", "b", "c")

steps = st.lists(
    st.one_of(
        st.tuples(st.just("push"), st.integers(-2, 2), st.sets(st.sampled_from(WORKERS))),
        st.tuples(st.just("pop"), st.integers(0, 10**6), st.none()),
        st.tuples(st.just("take"), st.integers(0, 3), st.none()),
    ),
    max_size=40,
)


@given(steps)
def test_the_first_at_each_home_is_that_of_a_plain_list(steps):
    ready, kept = Ready(), []
    for count, (what, number, homes) in enumerate(steps):
        if what == "push":
            entry = Entry(False, (number,), count, count, ANY, tuple(sorted(homes)), Like())
            ready.push(entry)
            kept.append(entry)
        elif kept and what == "pop":
            entry = kept.pop(number % len(kept))
            assert ready.pop(entry) and not ready.pop(entry)
        elif kept:  # what is first somewhere goes first
            entry = ready.at(("", *WORKERS)[number])
            if entry is not None:
                kept.remove(entry)
                ready.pop(entry)
        at = {home: [e for e in kept if home in (e.homes or ("",))] for home in ("", *WORKERS)}
        counts = Counter({home: len(some) for home, some in at.items() if some})
        assert ready.count_at == counts and set(ready.homes) == set(counts)
        assert len(ready) == len(kept) and all(entry in ready for entry in kept)
        for home, some in at.items():
            assert ready.at(home) is (min(some) if some else None)
