"""What is made of the history of jobs: its last hours in arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.job_history import Epochs

#: Values that `table` returns.
SHOWN = ("normalized_loss", "core_seconds")


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
