"""Choice of the trials that have the threads of their worker.

A task cannot leave its worker, so the choice is made per worker. All trials are explored first, as
long as few enough wait. Then the trials with the lowest score have the threads.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from dask_slaq.core.trials.trials import Trial, Trials

__all__ = ["Room", "Turns", "choose"]


@dataclass(slots=True)
class Room:
    """Room for the trials of one search on one worker.

    Attributes
    ----------
    threads : int
        Threads that the search may use there.
    begun : int
        Tasks of the search on the worker that have not reported, and run or wait for a thread.
    crowded : bool
        Whether the worker's memory is above its target: no further trial should wait.
    takes_new : bool
        Whether tasks that are on no worker may begin there.
    used, wants : int
        Threads that the search uses there, and could use.
    """

    threads: int
    begun: int = 0
    crowded: bool = False
    takes_new: bool = True
    used: int = 0
    wants: int = 0


@dataclass(slots=True)
class Turns:
    """Turns on one worker: the first `width` of the trials in `order` that are alive may train.

    Trials that are not in `order` train on. `pruned` lists key and number of those that
    should end.
    """

    order: list[Hashable]
    width: int
    pruned: list[tuple[Hashable, Hashable]]


def choose(trials: Trials, rooms: Mapping[str, Room], unstarted: int) -> dict[str, Turns]:
    """Choose which trials of a search train on each worker.

    Parameters
    ----------
    trials : Trials
    rooms : mapping of str to Room
        By worker. Workers without trials may be among them.
    unstarted : int
        Tasks of the search that are ready and on no worker yet.

    Returns
    -------
    dict of str to Turns
        For each worker in `rooms`.
    """
    trials.forecast()
    at: dict[str, list[Trial]] = {worker: [] for worker in rooms}
    for trial in trials.alive.values():
        if trial.worker in at:
            at[trial.worker].append(trial)
    may_wait = trials.settings.max_waiting - trials.waiting
    found = {}
    # The workers that will be idle first take the next new trials.
    load = {w: sum(map(trials.seconds_left, some)) for w, some in at.items()} if unstarted else {}
    for worker in sorted(rooms, key=lambda w: (load.get(w, 0.0), w)):
        room = rooms[worker]
        # Without any thread, trials wait that were not explored, too.
        compared = [trial for trial in at[worker] if trial.explored or not room.threads]
        young = len(at[worker]) - len(compared)
        training = sum(not trial.waits for trial in compared)
        # Tasks beyond the threads that others leave have not begun.
        running = min(room.begun, max(room.threads - young - training, 0))
        width = max(room.threads - young - running, 0)
        new = room.begun - running
        takes = room.takes_new and not room.crowded
        reserved = min(unstarted, max(width - new, 0)) if takes else 0
        explored = max(width - new - reserved, 0)
        # A trial yields to a new one only if another may wait.
        yields = max(min(training, width) - explored, 0)
        allowed = 0 if room.crowded else max(min(yields, may_wait), 0)
        if yields > allowed:
            explored = min(training, width) - allowed
        else:
            unstarted -= reserved
        may_wait -= allowed
        if room.crowded:  # those that are done first free their memory
            compared.sort(key=lambda t: (t.waits, trials.seconds_left(t), t.name))
        elif 1 < explored < len(compared) <= 2 * explored and _is_over(trials, compared):
            compared.sort(key=lambda t: (-trials.seconds_left(t), t.name))
        else:
            compared.sort(key=_rank)
        order = [trial.key for trial in compared]
        pruned = [(trial.key, trial.number) for trial in at[worker] if trial.hopeless]
        found[worker] = Turns(order, explored, pruned)
    return found


def _rank(trial: Trial) -> tuple[bool, float, str]:
    """Return the sort key of a trial on its worker, first served first."""
    score = trial.score if not math.isnan(trial.score) else math.inf
    return (not trial.in_turn, score, trial.name)


def _is_over(trials: Trials, last: list[Trial]) -> bool:
    """Return whether none of the last trials of a worker is expected to be the best.

    Then the longest come first, so that the threads of the worker end together.
    """
    return all(trial.score > trials.best_final for trial in last)
