"""Benchmark of expected ends: what it counts."""

from benchmarks.ends import figures
from benchmarks.live_jobs.owned import Watched, make_owned_jobs, run_owned


def test_ends_within_the_band_and_far_from_it_are_counted():
    run, fair = Watched(), Watched()
    for job, end in (("a", 10.0), ("b", 15.0), ("c", 40.0), ("d", 80.0)):
        ends = {"low": 12.0, "high": 50.0, "expected": 15.0, "promised": 40.0}
        run.looks[job], run.ended[job] = [(0.0, 0.3, True, ends)], end
        for each, first in ((run, 4.0), (fair, 2.0)):
            each.came[job], each.first[job] = 0.0, first
    found = figures([(run, fair)])
    assert found["band"]["20-40"] == 0.5 and found["answers"]["20-40"] == 4
    assert (found["four_times"], found["promise_kept"]) == (0.25, 0.75)
    assert found["first_report_worst"] == 2.0


def test_jobs_of_owners_are_looked_at_and_end():
    jobs = make_owned_jobs(0, 3)
    run = run_owned(jobs, "first-to-target", 0)
    assert set(run.looks) <= set(run.ended) == {job.name for job in jobs}
