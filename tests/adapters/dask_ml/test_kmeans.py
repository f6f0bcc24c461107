"""dask-ml's `KMeans` reports the inertia of every Lloyd iteration."""

import dask.array as da
import numpy as np
import pytest
from adapters.libraries import reported
from dask.callbacks import Callback
from dask_ml.cluster import KMeans

pytestmark = pytest.mark.usefixtures("in_this_thread")


def lloyd(x, centers, iterations):
    """The obvious algorithm in NumPy: squared distances before and after every update."""
    losses = []
    for _ in range(iterations):
        labels = ((x[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        if not losses:
            losses.append(((x - centers[labels]) ** 2).sum())
        centers = np.array(
            [
                x[labels == j].mean(axis=0) if (labels == j).any() else np.zeros(x.shape[1])
                for j in range(len(centers))
            ]
        )
        losses.append(((x - centers[labels]) ** 2).sum())
    return losses


def fit(x, init, **settings):
    model = KMeans(len(init), init=init, **settings)
    return model.fit(da.from_array(x, chunks=(len(x) // 4, -1)))


def observed(x, init, **settings):
    with reported() as losses:
        model = fit(x, init, **settings)
    return model, losses


def test_every_iteration_reports_the_inertia(rows):
    settings = {"max_iter": 30, "tol": 1e-6}
    model, losses = observed(rows.x, rows.x[:3], **settings)
    plain = fit(rows.x, rows.x[:3], **settings)

    assert 1 < model.n_iter_ < 30
    assert len(losses) == 1 + model.n_iter_  # the starting point, and each iteration
    assert all(type(loss) is float for loss in losses)
    np.testing.assert_allclose(losses, lloyd(rows.x, rows.x[:3], model.n_iter_))
    assert np.all(np.diff(losses) <= 1e-9 * losses[0])
    distances = ((rows.x[:, None] - model.cluster_centers_) ** 2).sum(axis=2).min(axis=1)
    assert losses[-1] == pytest.approx(distances.sum(), rel=1e-5)
    np.testing.assert_allclose(model.cluster_centers_, plain.cluster_centers_, rtol=0, atol=1e-8)
    assert model.n_iter_ == plain.n_iter_


def test_a_scalable_start(rows):
    with reported() as losses:
        model = KMeans(3, random_state=0, max_iter=4).fit(rows.chunked("x"))
    assert len(losses) == 1 + model.n_iter_


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_data_far_from_zero(rows, dtype):
    x = (rows.x + 1e4).astype(dtype)
    _, losses = observed(x, x[:3], max_iter=4, tol=0)
    np.testing.assert_allclose(losses, lloyd(x.astype("f8"), x[:3].astype("f8"), 4), rtol=1e-3)


def test_an_empty_cluster_counts_for_nothing(rows):
    init = np.vstack([rows.x[:2], np.full((1, rows.x.shape[1]), 1e3)])
    _, losses = observed(rows.x, init, max_iter=1, tol=0)
    np.testing.assert_allclose(losses, lloyd(rows.x, init, 1))


def test_a_perfect_clustering_reports_zero():
    x = np.repeat(np.eye(4), 10, axis=0)
    _, losses = observed(x, np.eye(4), max_iter=3)
    assert losses == pytest.approx([0.0] * len(losses), abs=1e-9)
    assert min(losses) >= 0


def test_costs_at_most_two_tasks_an_iteration(rows):
    """The counts leave the graph. The sum of squares is taken once, in the first iteration."""

    def tasks(fit, iterations):
        ended = []
        with Callback(posttask=lambda key, *_: ended.append(key)):
            fit(rows.x, rows.x[:3], max_iter=iterations, tol=0)
        return len(ended)

    added = {n: tasks(observed, n) - tasks(fit, n) for n in (1, 4)}
    assert added[4] - added[1] <= 2 * 3
