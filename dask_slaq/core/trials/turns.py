"""Choice of the trials that have the threads of their worker, which a task cannot leave."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from dask_slaq.core.trials.memory import MANY
from dask_slaq.core.trials.trials import Trial, Trials

__all__ = ["Account", "Room", "Turns", "choose"]

#: Bounds of the balance of an account, in thread-seconds.
MOST_OWED = 1.0
#: Models of the largest size seen that must have room before one begins whose like was not seen.
AMPLE = 8


class Account:
    """Balance, in thread-seconds, of the share that a search is granted and the threads it uses.

    A share of half a thread is one thread, half of the time:

    >>> account, used, due = Account(), 0, []
    >>> for _ in range(8):
    ...     account.update(share=0.5, used=used, seconds=0.5)
    ...     used = account.due(share=0.5)
    ...     due.append(used)
    >>> due
    [1, 0, 1, 0, 1, 0, 1, 0]
    """

    def __init__(self) -> None:
        self.balance = 0.0

    def update(self, share: float, used: int, seconds: float) -> None:
        """Credit a share of threads granted, and charge threads used, both for `seconds`."""
        self.balance += (share - used) * seconds
        self.balance = min(max(self.balance, -MOST_OWED), MOST_OWED)

    def due(self, share: float) -> int:
        """Return the threads that the search may use now."""
        return math.floor(share) + (self.balance > 0)


@dataclass(slots=True)
class Room:
    """Room for the trials of one search on one worker."""

    threads: int  # that the search may use there
    begun: int = 0  # tasks that have not reported, and run or wait for a thread
    crowded: bool = False  # the worker's memory is above its target: trials should end soon
    admits: int = MANY  # tasks that may begin there while trials wait, by its memory
    takes_new: bool = True  # tasks that are on no worker may begin there
    used: int = 0  # threads that the search uses there
    wants: int = 0  # threads that it could use there
    keeps: int = 0  # threads that it gives to nobody: a model would begin there without room


@dataclass(slots=True)
class Turns:
    """Turns on one worker: the first `width` of the trials in `order` that are alive may train.

    Trials that are not in `order` train on, but for the first `explored` of them that make
    `EXPLORE` reports: these wait. `pruned` lists key and number of those that should end.
    """

    order: list[Hashable]
    width: int
    explored: int
    pruned: list[tuple[Hashable, Hashable]]


def choose(trials: Trials, rooms: Mapping[str, Room], unstarted: int) -> dict[str, Turns]:
    """Choose which trials train on each worker in `rooms`, and give them another turn.

    All trials are explored first, as long as few enough wait; then those with the lowest score have
    the threads. `unstarted` tasks of the search are ready and on no worker yet.
    """
    trials.forecast()
    at: dict[str, list[Trial]] = {worker: [] for worker in rooms}
    for trial in trials.alive.values():
        if trial.worker in at:
            at[trial.worker].append(trial)
    may_wait = trials.settings.max_waiting - trials.waiting
    found = {}
    ahead = _ahead(trials, at, rooms) if unstarted or any(r.begun for r in rooms.values()) else {}
    for worker in sorted(rooms, key=lambda w: (ahead.get(w, 0.0), w)):
        room = rooms[worker]
        # A model cannot leave its worker: new ones begin where the work will end first.
        admits = 0 if room.crowded else room.admits
        explores = admits > 0 and ahead.get(worker, 0.0) <= 1.0
        # Without any thread, trials wait that were not explored, too.
        compared = [trial for trial in at[worker] if trial.explored or not room.threads]
        young = len(at[worker]) - len(compared)
        training = sum(not trial.waits for trial in compared)
        # Tasks beyond the threads that others leave have not begun.
        running = min(room.begun, max(room.threads - young - training, 0))
        free = max(room.threads - young - running, 0)
        new = room.begun - running
        takes = explores and room.takes_new
        reserved = min(unstarted, max(free - new, 0)) if takes else 0
        width = max(free - new - reserved, 0)
        # A trial yields to a new one only if another may wait.
        yields = max(min(training, free) - width, 0)
        allowed = max(min(yields, may_wait, admits), 0) if explores else 0
        # A swap would free a thread, in which a task that is there would begin.
        stays = new > 0 and yields > allowed
        if yields > allowed:
            width = min(training, free) - allowed
        else:
            unstarted -= reserved
        may_wait -= allowed
        # These wait by themselves, before it is known what memory the last one has taken.
        ample = (admits - allowed) // AMPLE
        explored = max(min(room.threads, may_wait, ample), 0) if explores and new + reserved else 0
        may_wait -= explored
        if room.crowded or stays:  # those that are done first free their memory
            compared.sort(key=lambda t: (t.waits, trials.seconds_left(t), t.name))
        elif 1 < width < len(compared) <= 2 * width and _is_over(trials, compared):
            compared.sort(key=lambda t: (-trials.seconds_left(t), t.name))
        else:
            compared.sort(key=_rank)
            first = next((i for i, t in enumerate(compared) if not t.in_turn), width)
            if first < width and trials.second_looks(worker):
                least = min(compared[first:], key=lambda t: (t.step, t.name))
                compared.remove(least)
                compared.insert(first, least)
        for trial in compared[:width]:
            if not trial.waits and not trial.in_turn:
                trials.begin_turn(trial)  # another one
        order = [trial.key for trial in compared]
        pruned = [(trial.key, trial.number) for trial in at[worker] if trials.gives_up(trial)]
        found[worker] = Turns(order, width, explored, pruned)
    return found


def _ahead(
    trials: Trials, at: Mapping[str, list[Trial]], rooms: Mapping[str, Room]
) -> dict[str, float]:
    """Return how much more work each worker has than the one with the least, in trials."""
    one = max(trials.seconds_of_one(), 1e-9)
    work = {
        worker: sum(map(trials.seconds_left, some)) / max(rooms[worker].threads, 1)
        for worker, some in at.items()
    }
    least = min((work[w] for w, room in rooms.items() if not room.crowded), default=0.0)
    return {worker: (seconds - least) / one for worker, seconds in work.items()}


def _rank(trial: Trial) -> tuple[bool, float, str]:
    """Return the sort key of a trial on its worker, first served first."""
    score = trial.score if not math.isnan(trial.score) else math.inf
    return (not trial.in_turn, score, trial.name)


def _is_over(trials: Trials, last: list[Trial]) -> bool:
    """Return whether none of the last trials of a worker is expected to be the best.

    Then the longest come first, so that the threads of the worker end together.
    """
    return all(trial.score > trials.best_final for trial in last)
