"""The history of epochs is bounded and can be read in pieces."""

import numpy as np
import pytest

from dask_slaq.client.queries import dataset
from dask_slaq.core.jobs import history as module
from dask_slaq.core.jobs.history import (
    MOST_BYTES,
    OVERHEAD_BYTES,
    PIECE_BYTES,
    ROW,
    VARIABLES,
    Epochs,
    threads,
)


def values(*shares: float, **more) -> dict:
    """The variables of jobs with these shares."""
    return {**dict.fromkeys(VARIABLES, np.zeros(len(shares))), "share": np.array(shares), **more}


def pieces(epochs: Epochs, between=lambda: None, time: float = 99.0) -> list[dict]:
    """All pieces, as a client reads them."""
    found, start, stop = [], 0, None
    while start is not None:
        found.append(epochs.read(time, start, stop))
        start, stop = found[-1]["next"], found[-1]["stop"]
        between()
    return found


def shares(found: list[dict]) -> dict[str, list[float]]:
    data = dataset(found)
    return {str(name): data.share.sel(job=name).values.tolist() for name in data.job.values}


def test_jobs_have_values_in_the_epochs_in_which_they_ran():
    epochs = Epochs(10)
    epochs.add(1.0, ["b"], values(2.0, loss=np.array([0.1 + 0.2])))
    epochs.add(2.0, [], values())
    epochs.add(3.0, ["a", "b"], values(1.0, 3.0))
    data = dataset(pieces(epochs))
    assert data.job.values.tolist() == ["b", "a"]
    assert data.time.values.tolist() == [1.0, 2.0, 3.0]
    np.testing.assert_array_equal(data.share, [[2.0, np.nan, 3.0], [np.nan, np.nan, 1.0]])
    assert data.loss.values[0, 0] == 0.1 + 0.2
    assert data.share.attrs["long_name"] == "threads granted"


def test_jobs_that_ended_are_in_the_next_epoch():
    epochs = Epochs(10)
    epochs.add(1.0, ["a", "b"], values(1.0, 2.0))
    epochs.end("a", values(5.0), 1.0)
    found = shares(pieces(epochs))
    assert found == {"a": [1.0, 5.0], "b": pytest.approx([2.0, np.nan], nan_ok=True)}
    assert dataset(pieces(epochs)).time.values.tolist() == [1.0, 99.0]
    epochs.add(2.0, ["b"], values(3.0))
    assert shares(pieces(epochs)) == {"a": [1.0, 5.0], "b": [2.0, 3.0]}
    epochs.end("b", values(4.0), 1.0)
    epochs.begin("b", 2.5)  # again, before the next epoch
    epochs.add(3.0, ["b"], values(6.0))
    assert shares(pieces(epochs))["b"] == [2.0, 3.0, 4.0, 6.0]


def test_the_oldest_epochs_go_and_so_do_the_names_of_their_jobs():
    epochs = Epochs(3)
    for k in range(20):
        epochs.add(float(k), [f"job-{k}", "always"], values(float(k), 1.0))
        if k % 5 == 0:
            epochs.end(f"short-{k}", values(7.0), 1.0)
    assert len(epochs) == 3 and epochs.nbytes == 3 * (2 * ROW.itemsize + OVERHEAD_BYTES)
    assert set(shares(pieces(epochs))) == {"job-17", "job-18", "job-19", "always"}


def test_jobs_shorter_than_an_epoch_do_not_pile_up(monkeypatch):
    """None is added while no job is there at its end; what ended is in epochs of its own."""
    monkeypatch.setattr(module, "MOST_ENDED", 10)
    epochs = Epochs(5)
    for k in range(1000):
        epochs.begin(f"job-{k}", float(k))
        epochs.end(f"job-{k}", values(float(k)), k + 0.5)
    found = shares(pieces(epochs))
    assert len(epochs) == 5 and 50 < len(found) <= 60
    assert set(found) >= {f"job-{k}" for k in range(950, 1000)}


def test_of_many_jobs_fewer_epochs_are_kept(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 50_000)
    names = [f"job-{k}" for k in range(100)]
    epochs = Epochs(1000)
    for k in range(40):
        epochs.add(float(k), names, values(*[float(k)] * 100))
    assert epochs.nbytes <= 50_000
    assert len(epochs) == 50_000 // (100 * ROW.itemsize + OVERHEAD_BYTES)
    assert dataset(pieces(epochs)).time.values[-1] == 39.0


def test_two_hundred_jobs_for_an_hour_are_small_and_come_in_pieces():
    names, jobs = [f"job-{k}" for k in range(200)], values(*np.arange(200.0))
    epochs = Epochs(3600)
    for k in range(3700):
        epochs.add(float(k), names, jobs)
    assert len(epochs) == 3600 and epochs.nbytes <= MOST_BYTES
    found = pieces(epochs)
    assert all(len(piece["rows"]) <= 1.1 * PIECE_BYTES for piece in found) and len(found) > 20
    data = dataset(found)
    assert dict(data.sizes) == {"job": 200, "epoch": 3600}
    assert (data.share == np.arange(200.0)[:, None]).all()


def test_epochs_that_come_and_go_between_two_pieces(monkeypatch):
    monkeypatch.setattr(module, "PIECE_BYTES", 1)
    epochs = Epochs(6)
    for k in range(6):
        epochs.add(float(k), ["a", f"job-{k}"], values(float(k), 0.0))
    more = iter(range(6, 100))

    def add() -> None:
        k = next(more)
        epochs.add(float(k), ["a"], values(float(k)))

    # Each of them drops the oldest; those that came later are not waited for.
    found = shares(pieces(epochs, add))
    assert found["a"] == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    lagging = epochs.read(0.0, start=0)
    assert np.frombuffer(lagging["rows"], ROW)["share"].tolist() == [6.0]


def test_nothing_is_kept_of_nothing():
    (piece,) = pieces(Epochs(5))
    assert dict(dataset([piece]).sizes) == {"job": 0, "epoch": 0}


def test_threads_are_core_seconds_per_second():
    times = np.array([0.0, 1.0, 3.0, 4.0, 5.0])
    used = threads(times, np.array([[1.0, 3.0, 7.0, 7.0, 9.0]]), 1)
    np.testing.assert_allclose(used, [[0.0, 2.0, 2.0, 0.0, 2.0]])
    used = threads(times, np.array([[1.0, 3.0, 7.0, 7.0, 9.0]]), 10)
    np.testing.assert_allclose(used, [[0.0, 2.0, 2.0, 1.5, 1.6]])
    # A job that began later, one that ended, and another one of the same name.
    nan = np.nan
    some = np.array(
        [[nan, 2.0, 4.0, 5.0, 6.0], [0.0, 1.0, 1.0, nan, nan], [5.0, 8.0, nan, 2.0, 3.0]]
    )
    used = threads(times, some, 1)
    expected = [[0, 2, 1, 1, 1], [0, 1, 0, 0, 0], [0, 3, 0, 2, 1]]
    np.testing.assert_allclose(used, expected)
    # The time of a running task was estimated too high.
    np.testing.assert_allclose(threads(times, np.array([[1.0, 9.0, 8.9, 9, 9]]), 1)[0, 2], 0)
    assert threads(times[:1], some[:, :1], 3).tolist() == [[0], [0], [0]]
