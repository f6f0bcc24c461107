"""The report history is the same whether reports are added one by one or in batches."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.forecast.history import Histories

runs = st.lists(
    st.lists(st.tuples(st.integers(0, 2), st.floats(-1e3, 1e3)), max_size=60), max_size=4
)


@given(runs)
def test_reports_one_by_one_are_kept_as_those_of_all_rows_at_once(batches):
    one, other = Histories(8), Histories(8)
    for history in (one, other):
        for _ in range(3):
            history.acquire()
    for batch in batches:
        for row, loss in batch:
            one._append(np.array([row]), np.array([loss]))
        for row in range(3):
            losses = [loss for r, loss in batch if r == row]
            if losses:
                other._append_run(row, np.array(losses))
    for name, column in one.column.items():
        np.testing.assert_array_equal(column[:3], other.column[name][:3], err_msg=name)


def test_a_batch_keeps_the_order_of_each_row():
    history = Histories(8)
    rows = np.array([history.acquire(), history.acquire()])
    history.append(rows[[0, 1, 0, 0, 0, 0]], np.array([6.0, 3.0, 5.0, 4.0, 3.0, 2.0]))
    losses, known = history.recent(rows, np.zeros(2, int))
    assert losses[0, :5].tolist() == [2, 3, 4, 5, 6] and known.tolist() == [5, 1]


@given(
    st.lists(st.floats(0.5, 1.0), min_size=4, max_size=60, unique=True),
    st.lists(st.floats(2.0, 30.0), min_size=1, max_size=3),
    st.sampled_from([8, 9, 32]),
    st.integers(1, 70),
)
def test_a_huge_start_is_cut_down_to_what_followed(later, powers, window, size):
    start = sorted((10.0**p for p in powers), reverse=True)
    history = Histories(window)
    row = np.array([history.acquire()])
    losses = [*(100.0 * loss for loss in start), *later]
    for at in range(0, len(losses), size):
        some = losses[at : at + size]
        history.append(np.repeat(row, len(some)), np.array(some))
    column = history.column
    assert column["count"][0] == len(losses) and column["first"][0] <= max(later[:4])
    assert column["largest"][0] <= 0.5 and column["means"][0].max() <= 1.0
    assert column["lowest"][0] == min(later)


@given(st.lists(st.floats(0.0, 1.0), min_size=5, max_size=40), st.floats(-50.0, 9.0))
def test_an_ordinary_start_is_kept(losses, first):
    history = Histories(32)
    row = np.array([history.acquire()])
    smallest = min(losses[:16])
    if smallest > 0 and first > 5 * max(losses):
        first = 5 * max(losses)
    history.append(np.repeat(row, len(losses) + 1), np.array([first, *losses]))
    assert history.column["first"][0] == first


def test_what_converges_at_once_has_no_huge_start():
    for later in ([0.0] * 4, [0.5] * 4, 1e-3 ** np.arange(1, 6.0)):
        losses = [1e4, *later]
        history = Histories(32)
        row = np.array([history.acquire()])
        history.append(np.repeat(row, len(losses)), np.array(losses))
        assert history.column["first"][0] == losses[0]
