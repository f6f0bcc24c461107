"""The report history is the same whether reports are added one by one or in batches."""

from __future__ import annotations

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
                other._append_run(row, losses)
    for name, column in one.column.items():
        np.testing.assert_array_equal(column[:3], other.column[name][:3], err_msg=name)


def test_a_batch_keeps_the_order_of_each_row():
    history = Histories(8)
    rows = np.array([history.acquire(), history.acquire()])
    history.append(rows[[0, 1, 0, 0, 0, 0]], np.array([6.0, 3.0, 5.0, 4.0, 3.0, 2.0]))
    losses, known = history.recent(rows, np.zeros(2, int))
    assert losses[0, :5].tolist() == [2, 3, 4, 5, 6] and known.tolist() == [5, 1]
