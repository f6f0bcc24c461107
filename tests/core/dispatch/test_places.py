"""When a worker has a slot, in numbers."""

from __future__ import annotations

import math

import pytest

from dask_slaq.core.dispatch import Contender, Like, Place, Sent


def test_a_task_starts_after_those_that_wait_on_the_worker():
    job = Contender("a")
    runs = Sent(job, Like(), True, "", (), 0.0, 1.0, 1.0)
    runs.start = 99.5
    waits = Sent(job, Like(), True, "", (), 0.0, 0.25, 0.25)
    assert Place("w", 1, 1, [runs], now=100.0).free_in() == pytest.approx(0.5)
    assert Place("w", 1, 2, [runs, waits], now=100.0, ours=1).free_in() == pytest.approx(0.75)


def test_a_worker_is_low_while_few_tasks_wait_there_or_only_short_ones():
    for ours, seconds, low in ((1, 1.0, True), (3, 0.001, True), (3, 0.003, False)):
        place = Place("w", 2, 2 + ours, ours=ours, seconds=seconds)
        assert place.is_low() == low


def test_a_thread_is_free_when_the_first_task_ends_and_by_occupancy_if_no_end_is_known():
    def runs(seconds: float) -> Sent:
        sent = Sent(Contender("a"), Like(), True, "", (), 0.0, seconds, seconds)
        sent.start = 100.0
        return sent

    some = [runs(2.0), runs(0.5)]
    assert Place("w", 2, 2, some, now=100.0, occupancy=lambda: 9.0).next_end() == 0.5
    unknown = [runs(math.inf)]
    assert Place("w", 2, 2, unknown, now=100.0, occupancy=lambda: 9.0).next_end() == 4.5
    assert Place("w", 2, 1, unknown, now=100.0, occupancy=lambda: 9.0).next_end() == 0.0


def test_tasks_beyond_the_threads_that_we_did_not_send_are_a_backlog():
    for load, ours, backlog in ((1, 0, False), (3, 2, False), (3, 1, True), (4, 0, True)):
        assert Place("w", 1, load, ours=ours).has_backlog() == backlog
