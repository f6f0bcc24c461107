"""An iteration is one task per partition with sums in a fixed order, and bad data are refused."""

from __future__ import annotations

import cloudpickle
import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from dask import dataframe as dd
from dask import delayed
from distributed import futures_of
from distributed.protocol import deserialize, serialize

from benchmarks.workloads.elastic.partitions import Partitions, contiguous, tree_sum

rng = np.random.default_rng(0)
X = rng.standard_normal((1000, 6))
y = (X[:, 0] > 0).astype(int)


def split(chunk=37, columns=6):
    return Partitions(da.from_array(X, chunks=(chunk, columns)), da.from_array(y, chunks=chunk))


def products(x, y, w):
    return x.T @ y * w, len(x)


@pytest.mark.parametrize("columns", [6, 2])
def test_sums_are_those_of_the_whole(columns):
    total, n = split(columns=columns).sum(products, 2.0)
    np.testing.assert_allclose(total, 2 * X.T @ y)
    assert n == 1000


def test_sums_are_in_one_order_whatever_runs_them():
    with dask.config.set(scheduler="threads"):
        threads, _ = split(3).sum(products, 1.0)
    with dask.config.set(scheduler="sync"):
        sync, _ = split(3).sum(products, 1.0)
    assert np.array_equal(threads, sync)


def test_an_iteration_is_a_task_a_partition_and_a_tree():
    parts = Partitions(da.from_array(X, chunks=(16, 6)).persist())
    graph = dict(tree_sum(parts.map(len)).__dask_graph__())
    names = [str(key).rsplit("-", 5)[0] for key in graph if isinstance(key, str)]
    assert sum(name.startswith("len") for name in names) == 63
    assert sum(name.startswith("_add") for name in names) == 8 + 1


def test_each_partition_may_have_a_state():
    parts = split()
    state = parts.map(_rows)
    (total,) = parts.sum(_with_state, state=state)
    assert total == sum(37**2 for _ in range(27)) + 1**2


def _rows(x, y):
    return len(x)


def _with_state(x, y, rows):
    return (rows * len(x),)


def test_large_arguments_are_sent_once():
    w = np.ones(20_000)
    tasks = [dict(one.__dask_graph__()) for one in split().map(products, w)]
    graph = {key: task for one in tasks for key, task in one.items()}
    assert len(cloudpickle.dumps(graph)) < 2 * w.nbytes + X.nbytes


def test_a_survey_counts_and_collects():
    found = split().survey(labels=True)
    assert found.n == 1000 and len(found.rows) == 28 and found.columns == 6
    assert list(found.labels) == [0, 1]


def spoiled(row, column, value):
    bad = X.copy()
    bad[row, column] = value
    return da.from_array(bad, chunks=(250, 6))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(value):
    with pytest.raises(ValueError, match=r"partition 2 of 4 .* not finite: array 1, row 7"):
        Partitions(spoiled(507, 3, value)).survey()


def test_a_value_in_a_sparse_block_is_named_by_its_row():
    blocks = spoiled(507, 3, np.nan).map_blocks(scipy.sparse.csr_matrix)
    with pytest.raises(ValueError, match=r"partition 2 of 4 .* not finite: array 1, row 7"):
        Partitions(blocks).survey()


def test_an_empty_partition_is_named():
    empty = da.from_array(X, chunks=((500, 0, 500), 6))
    with pytest.raises(ValueError, match="partition 1 of 3 is empty"):
        Partitions(empty).survey()


def test_partitions_must_match():
    with pytest.raises(ValueError, match="X has 4 partitions and array 2 has 2"):
        Partitions(da.from_array(X, chunks=(250, 6)), da.from_array(y, chunks=500))
    off = da.from_array(y[:999], chunks=((250, 250, 249, 250),))
    with pytest.raises(ValueError, match=r"partition 2 of 4 has arrays of different lengths"):
        Partitions(da.from_array(X, chunks=(250, 6)), off).survey()


def test_one_class_is_none():
    with pytest.raises(ValueError, match="one class only"):
        Partitions(X, np.ones(1000)).survey(labels=True)


def test_one_dimension_is_refused():
    with pytest.raises(ValueError, match="2 dimensions"):
        Partitions(X[:, 0])


def test_an_array_in_memory_is_sent_once(local_client):
    parts = Partitions(X)
    assert len(futures_of(parts.map(len))) == 1
    assert parts.sum(_count) == (1000,)


def test_persisted_blocks_are_taken_as_they_are(local_client):
    table = da.from_array(X, chunks=(250, 6)).persist()
    for array in (table, table[:, :3].persist(), table[:, :3], table.rechunk((250, 2))):
        assert Partitions(array).survey().rows == [250] * 4


def _count(x):
    return (len(x),)


def at_an_odd_address(array):
    """What a worker receives over TCP may lie anywhere."""
    room = np.empty(array.nbytes + 3, "u1")[3:]
    odd = np.ndarray(array.shape, array.dtype, room, strides=array.strides)
    odd[...] = array
    assert not odd.flags.aligned
    return odd


@pytest.mark.parametrize("order", ["C", "F"])
def test_a_sum_does_not_depend_on_addresses(order):
    x, labels = np.asarray(X, order=order), rng.standard_normal(1000)
    found = []
    for place in (np.asarray, at_an_odd_address):
        block = delayed(place, pure=False)(x)
        part = da.from_delayed(block, x.shape, x.dtype)
        with dask.config.set(scheduler="sync"):
            found.append(Partitions(part, labels).sum(products, 1.0)[0])
    np.testing.assert_array_equal(*found)


def test_a_block_is_added_up_alike_after_it_was_sent():
    view = np.asfortranarray(rng.standard_normal((501, 13)))[:, ::2]
    sent = deserialize(*serialize(view))
    weights = rng.standard_normal(501)
    assert view.strides != sent.strides
    np.testing.assert_array_equal(contiguous(sent).T @ weights, contiguous(view).T @ weights)
    for order in "CF":
        x = np.asarray(view, order=order)
        assert contiguous(x) is x


def test_a_frame_is_refused_with_what_to_do():
    frame = dd.from_pandas(pd.DataFrame({"a": [1.0, 2.0]}), npartitions=1)
    with pytest.raises(TypeError, match="to_dask_array"):
        Partitions(frame)
