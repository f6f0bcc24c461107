"""Benchmark of expected ends: what it asks and counts."""

import pytest
from commands import as_json

from benchmarks.ends import Asked, coverage, live, main


def test_ends_within_the_band_below_and_above_it_are_counted():
    run = Asked()
    for job, end in (("a", 10.0), ("b", 15.0), ("c", 40.0), ("d", 20.0)):
        run.answers[job, 0.2] = 0.0, {"low": 12.0, "high": 30.0, "promised": 20.0}
        run.ended[job] = end
    row = coverage([run])[0.2]
    assert (row["jobs"], row["within"], row["below"], row["above"]) == (4, 0.5, 0.25, 0.25)
    assert row["kept"] == 0.75


def test_simulated_jobs_are_asked():
    found = as_json(main, "--jobs", "6", "--seeds", "1")
    assert found["0.2"]["jobs"] == 6
    assert 0 <= found["0.4"]["within"] <= 1


@pytest.mark.slow
def test_jobs_on_dask_are_asked():
    found = coverage(live("max-total", seeds=1, count=2))
    assert found[0.4]["jobs"] == 2
