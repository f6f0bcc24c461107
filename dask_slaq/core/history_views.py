"""What is made of the history of jobs: its last hours in arrays, and epochs from kept curves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dask_slaq.core.job_history import ROW, VARIABLES, Epochs

__all__ = ["epochs_of", "table", "threads"]

#: Values that `table` returns.
SHOWN = ("normalized_loss", "core_seconds")
#: Maximum number of epochs that are made of curves.
MOST_PUT_BACK = 300


def threads(times: NDArray[Any], core_seconds: NDArray[Any], n_epochs: int) -> NDArray[Any]:
    """Return how many threads jobs used: core-seconds per second, over `n_epochs` up to each epoch.

    `times` (n_epochs,) are seconds, and `core_seconds` (n_jobs, n_epochs) what each job has used so
    far, nan where it did not run. They begin anew if another job of the same name has begun. The
    first column is 0.
    """
    used = np.zeros(core_seconds.shape)
    if len(times) < 2:
        return used
    absent = np.isnan(core_seconds)
    # The last value known before each epoch: 0 for a job that began later.
    last = np.where(absent, 0, np.arange(len(times)))
    last = np.maximum.accumulate(last, axis=1)
    total = np.nan_to_num(np.take_along_axis(core_seconds, last, axis=1))
    step = np.diff(total, axis=1)
    # Of tasks that run, the time so far is only estimated, and may have been too much.
    began_anew = total[:, 1:] < 0.5 * total[:, :-1]
    used[:, 1:] = np.where(began_anew, total[:, 1:], np.maximum(step, 0.0))
    seconds = np.concatenate([[0.0], np.diff(times)])
    summed, passed = np.cumsum(used, axis=1), np.cumsum(seconds)
    first = np.maximum(np.arange(len(times)) - n_epochs, 0)
    over = np.maximum(passed - passed[first], 1e-9)
    mean: NDArray[Any] = (summed - summed[:, first]) / over
    return mean


def table(
    epochs: Epochs, seconds: float, most: int = 300
) -> tuple[list[str], NDArray[Any], dict[str, NDArray[Any]]]:
    """Return the epochs of the last `seconds`; of more than `most`, equally spaced ones.

    These are the names of the jobs, in order of appearance; the Unix times (n_epochs,); and by
    name of the value, for those in `SHOWN`, an array (n_jobs, n_epochs), nan where a job did
    not run.
    """
    some = epochs.since(seconds)
    if not some:
        nothing = np.empty((0, 0))
        return [], np.empty(0), dict.fromkeys(SHOWN, nothing)
    some = some[::-1][:: -(-len(some) // most)][::-1]
    rows = np.concatenate([rows for _, rows in some])
    numbers, which = np.unique(rows["job"], return_inverse=True)
    epoch = np.repeat(np.arange(len(some)), [len(rows) for _, rows in some])
    values = {}
    for name in SHOWN:
        values[name] = np.full((len(numbers), len(some)), np.nan)
        values[name][which, epoch] = rows[name]
    names = [epochs.name_of(number) for number in numbers.tolist()]
    return names, np.array([time for time, _ in some]), values


def epochs_of(
    curves: Sequence[Mapping[str, Any]],
) -> Iterator[tuple[float, list[str], Mapping[str, ArrayLike]]]:
    """Yield epochs with the curves of jobs: Unix time, names and values, as for `Epochs.add`.

    A job has a value in each of these epochs between its first and its last. Those that are
    not as `Epochs.curve` returned them are left out.
    """
    read: list[tuple[str, NDArray[Any], NDArray[Any]]] = []
    for each in curves:
        try:
            times = np.array(each["times"], np.float64)
            values = np.array([each[name] for name in VARIABLES], np.float64)
        except (KeyError, TypeError, ValueError):
            continue
        whole = values[[ROW[name].kind == "u" for name in VARIABLES]]
        if (
            values.shape == (len(VARIABLES), len(times) or -1)
            and np.isfinite(times).all()
            and (np.diff(times) >= 0).all()
            and ((whole >= 0) & (whole < 2**32)).all()
        ):
            read.append((str(each.get("job")), times, values))
    grid = np.unique(np.concatenate([np.empty(0), *(times for _, times, _ in read)]))
    some = set(grid[:: max(-(-len(grid) // MOST_PUT_BACK), 1)].tolist())
    some.update(float(t) for _, times, _ in read for t in times[[0, -1]])
    for at in sorted(some):
        there = {name: (t, v) for name, t, v in read if t[0] <= at <= t[-1]}
        rows = {
            name: [np.interp(at, t, v[k]) for t, v in there.values()]
            for k, name in enumerate(VARIABLES)
        }
        yield at, list(there), rows
