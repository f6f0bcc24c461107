"""Trials of ended searches: as many as fit, the newest first."""

from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.trials import EndedSearches, SearchSettings, Trials


def rows(count: int) -> list[dict[str, object]]:
    trials = Trials(SearchSettings())
    for number in range(count):
        key = f"train-6b3f2a9c-{number}"
        trials.report(trials.at(key, "tcp://127.0.0.1:43210"), [1 / (number + 1)] * 3, 0.3)
        trials.end(key, "done")
    return trials.as_dicts()


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 30)), min_size=1))
def test_the_newest_are_kept_within_the_bytes(added):
    ended, most = EndedSearches(3000), {}
    for run, count in added:
        most.pop(run, None)
        most[run] = [{"key": f"{run}{k}", "loss": k / 7} for k in range(count)]
        ended.add(run, most[run])
        assert ended.get(run) == most[run]
        assert ended.nbytes <= 3000 or len(ended) == 1
    kept = [run for run in most if ended.get(run) or not most[run]]
    assert list(most)[-1] in kept
    assert len(ended) <= len(most)
    assert ended.get("unknown") == []


def test_a_hundred_large_searches_stay_within_the_bytes():
    ended, some = EndedSearches(1_000_000), rows(1000)
    for run in range(100):
        ended.add(str(run), some)
    assert ended.nbytes <= 1_000_000
    assert ended.nbytes / len(ended) / 1000 < 250  # bytes of a trial
    assert repr(ended.get("99")) == repr(some) and ended.get("0") == []
