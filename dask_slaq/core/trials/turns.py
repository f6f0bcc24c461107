"""Choice of the trials that have the threads of their worker, and of those that move to another."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from dask_slaq.core.trials.footprint import MANY_MODELS
from dask_slaq.core.trials.trial import Trial
from dask_slaq.core.trials.trials import Trials


class TrialAccount:
    """Balance, in thread-seconds, of the share that a search is granted and the threads it uses.

    It is bounded by `most` thread-seconds.

    A share of half a thread is one thread, half of the time:

    >>> account, used, due = TrialAccount(), 0, []
    >>> for _ in range(8):
    ...     account.update(share=0.5, used=used, seconds=0.5)
    ...     used = account.due(share=0.5)
    ...     due.append(used)
    >>> due
    [1, 0, 1, 0, 1, 0, 1, 0]
    """

    def __init__(self, most: float = 1.0) -> None:
        self.balance, self._most = 0.0, most

    def update(self, share: float, used: int, seconds: float) -> None:
        """Credit a share of threads granted, and charge threads used, both for `seconds`."""
        self.balance += (share - used) * seconds
        self.balance = min(max(self.balance, -self._most), self._most)

    def due(self, share: float) -> int:
        """Return the threads that the search may use now."""
        return math.floor(share) + (self.balance > 0)


@dataclass(slots=True)
class WorkerQuota:
    """Quota of the trials of one search on one worker."""

    threads: int  # that the search may use there
    begun: int = 0  # tasks that have not reported, and run or wait for a thread
    crowded: bool = False  # the worker's memory is above its target: trials should end soon
    admits: int = MANY_MODELS  # tasks that may begin there while trials wait, by its memory
    takes_new: bool = True  # tasks that are on no worker may begin there
    used: int = 0  # threads that the search uses there
    wants: int = 0  # threads that it could use there
    kept_idle: int = 0  # threads left idle: memory has no room for another model
    guests: int = 0  # trials that were sent there to go on, and have not reported
    leaves: bool = False  # trials that may leave do, instead of waiting there
    closing: bool = False  # all that may leave do, and none comes
    blocked: int = 0  # threads of what may need a lock: models that wait have them besides


@dataclass(slots=True)
class Turns:
    """Turns on one worker: the first `width` of the trials in `order` that are alive may train.

    Trials that are not in `order` have just begun. They train on, except that the first `explored`
    of them wait after their first turn. `pruned` lists key, number and curve of those that should
    end.
    """

    order: list[Hashable]
    width: int
    explored: int
    pruned: list[tuple[Hashable, Hashable, int]]
    over: list[Hashable]  # trials whose turn is over, and that keep their thread
    leave: list[Hashable] = field(default_factory=list)  # trials that leave the worker


class Destinations(NamedTuple):
    """Where models that may leave their worker can go on.

    `at` returns the workers with the state of a trial, which is moved at `bandwidth` bytes per
    second, and `allowed` has the workers where it may run, if not everywhere.
    """

    at: Callable[[Hashable], Collection[str]]
    bandwidth: float = math.inf
    allowed: Mapping[Hashable, Collection[str]] = MappingProxyType({})


def choose_everywhere(
    trials: Trials,
    quotas: Mapping[str, WorkerQuota],
    unstarted: int,
    destinations: Destinations | None,
) -> tuple[dict[str, Turns], list[tuple[Hashable, str]]]:
    """Decide for the whole cluster which trials of a search train, by the `quotas` of workers.

    Trials that stay have their turns on their worker: another one if theirs is over, and they keep
    their thread. Those that may leave go on at any of the `destinations`; without these, none
    moves. Returns the turns by worker, and what `moves` does.
    """
    turns = choose(trials, quotas, unstarted)
    moving = [] if destinations is None else moves(trials, quotas, turns, destinations)
    for turn in turns.values():
        for key in turn.over:
            trials.begin_turn(trials.alive[key])
    return turns, moving


def choose(
    trials: Trials,
    quotas: Mapping[str, WorkerQuota],
    unstarted: int,
    *,
    fewest_per_thread: int = 3,
) -> dict[str, Turns]:
    """Choose which trials train on each worker in `quotas`, and give them another turn.

    All trials are explored first, as long as few enough wait; then those with the lowest score have
    the threads. `unstarted` tasks of the search are ready and on no worker yet. With fewer models
    per thread than `fewest_per_thread` none waits: to choose among them gains nothing.
    """
    trials.forecast()
    threads = sum(quota.threads for quota in quotas.values())
    trials.choose_leads(threads)
    at: dict[str, list[Trial]] = {worker: [] for worker in quotas}
    for trial in trials.alive.values():
        if trial.worker in at and not (trial.state.migrates or trial.state.blocked):
            at[trial.worker].append(trial)
    trials.judge_groups()
    may_wait = trials.settings.max_waiting - trials.staying
    models = len(trials.alive) + len(trials.ended_of) + unstarted
    if models + sum(quota.begun for quota in quotas.values()) < fewest_per_thread * threads:
        may_wait = 0
    ahead = _ahead(trials, at, quotas) if unstarted else {}
    chosen = {}
    for worker in sorted(quotas, key=lambda w: (ahead.get(w, 0.0), w)):
        choice = _Choice(trials, worker, quotas[worker], at[worker], ahead.get(worker, 0.0))
        begin, wait = choice.divide(unstarted, may_wait)
        unstarted, may_wait = unstarted - begin, may_wait - wait
        choice.sort()
        chosen[worker] = choice.turns()
    return chosen


class _Choice:
    """Choice on one worker, which is `ahead` of the others by so many trials.

    Its threads go to models that begin, and to the first of the `compared` trials.
    """

    def __init__(
        self, trials: Trials, worker: str, quota: WorkerQuota, there: list[Trial], ahead: float
    ) -> None:
        self.trials, self.worker, self.quota, self.there = trials, worker, quota, there
        self.threads = max(quota.threads - quota.guests, 0)
        # A model cannot leave its worker: new ones begin where the work will end first. Those that
        # are there cannot go elsewhere, and would wait for long once no further ones come.
        self.ends_soon = quota.crowded and not quota.leaves
        self.admits = 0 if self.ends_soon else quota.admits
        self.explores = self.admits > 0 and ahead <= 1.0
        # Without any thread, trials wait that were not explored, too.
        self.compared = [trial for trial in there if trial.explored or not self.threads]
        self.width = self.explored = 0

    def divide(self, unstarted: int, may_wait: int) -> tuple[int, int]:
        """Divide the threads among models that begin and others. Return how many begin and wait."""
        quota, compared = self.quota, self.compared
        young = len(self.there) - len(compared)
        training = sum(not trial.state.waits for trial in compared)
        # Tasks beyond the threads that others leave have not begun.
        running = min(quota.begun, max(self.threads - young - training, 0))
        free = max(self.threads - young - running, 0)
        new = quota.begun - running
        led = sum(trial.leads for trial in compared)
        spare = max(free - new - quota.blocked - led, 0)
        reserved = min(unstarted, spare) if self.explores and quota.takes_new else 0
        self.width = max(free - new - reserved, min(led, free))
        # A trial yields to a new one only if another may wait.
        yields = max(min(training, free) - self.width, 0)
        allowed = max(min(yields, may_wait, self.admits), 0) if self.explores else 0
        begin = reserved
        if yields > allowed:
            self.width, begin = min(training, free) - allowed, 0
            # A swap would free a thread, in which a task that is there would begin.
            self.ends_soon = self.ends_soon or new > 0
        # These wait by themselves, before it is known what memory the last one has taken: there
        # must be room for eight of the largest seen before one begins whose like was not seen.
        ample = (self.admits - allowed) // 8
        if self.explores and new + reserved:
            self.explored = max(min(self.threads, may_wait - allowed, ample), 0)
        return begin, allowed + self.explored

    def sort(self) -> None:
        """Sort the trials, first served first."""
        trials, compared = self.trials, self.compared
        if self.ends_soon:
            # Those that are done first free their memory. Of two that take turns as they report,
            # both would wait, and a task would begin in the thread.
            compared.sort(
                key=lambda t: (
                    t.state.waits or t.turn.yields,
                    t.state.waits,
                    trials.seconds_left(t),
                    t.name,
                )
            )
        elif 1 < self.width < len(compared) <= 2 * self.width and _is_over(trials, compared):
            compared.sort(key=lambda t: (-trials.seconds_left(t), t.name))
        else:
            compared.sort(key=_rank)
            first = next((i for i, t in enumerate(compared) if not t.in_turn), self.width)
            if first < self.width and trials.second_looks(self.worker):
                least = min(compared[first:], key=lambda t: (t.step, t.name))
                compared.remove(least)
                compared.insert(first, least)

    def turns(self) -> Turns:
        """Return the turns, by which the last trials yield at their next report."""
        for i, trial in enumerate(self.compared):
            trial.turn.yields = i >= self.width
        first, quota = self.compared[: self.width], self.quota
        over = [t.key for t in first if not t.state.waits and not t.in_turn]
        order = [trial.key for trial in self.compared]
        pruned = [(t.key, t.number, t.curve) for t in self.there if self.trials.gives_up(t)]
        leaving: Collection[Trial] = ()
        if quota.leaves:
            waits = [t for t in self.compared if t.state.waits and t not in first]
            leaving = self.there if quota.closing else waits
        leave = [t.key for t in leaving if t.checkpoint.usable]
        return Turns(order, self.width, self.explored, pruned, over, leave)


def moves(
    trials: Trials,
    quotas: Mapping[str, WorkerQuota],
    turns: Mapping[str, Turns],
    destinations: Destinations,
) -> list[tuple[Hashable, str]]:
    """Choose which trials go on at another worker, best first, and lower the `turns` there.

    Returns the keys of those that are on no worker, with the worker where each goes on.
    A trial takes a thread that no other has a use for, or that of the worst one whose turn is over,
    if that is worse. One that waits on a worker is told to leave it first.
    """
    free: dict[str, int] = {}
    worst: dict[str, list[Trial]] = {}
    for worker, turn in turns.items():
        if quotas[worker].closing:
            continue
        free[worker] = max(turn.width - len(turn.order), 0)
        over = (trials.alive[key] for key in turn.over)  # best first
        worst[worker] = [trial for trial in over if not trial.leads]
    sent = []
    moving = (t for t in trials.alive.values() if t.state.migrates or not trials.is_at_its_end(t))
    for trial in sorted((t for t in moving if _may_move(t, turns)), key=_rank):
        # There it goes on without being sent.
        others = [w for w in free if w != trial.worker or trial.state.migrates]
        if trial.key in destinations.allowed:
            others = [w for w in others if w in destinations.allowed[trial.key]]
        here = destinations.at(trial.key)
        if trials.is_dear(trial, destinations.bandwidth):
            near = [w for w in others if w in here]
            others = others if trial.state.migrates and not near else near
        target = max(
            (w for w in others if free[w] > 0), key=lambda w: (w in here, free[w], w), default=None
        )
        if target is None:
            taking = [w for w in others if worst[w]]
            target = max(taking, key=lambda w: (_score(worst[w][-1]), w in here, w), default=None)
            if target is None or _score(worst[target][-1]) <= _score(trial):
                continue
        if trial.state.migrates:
            sent.append((trial.key, target))
        else:
            turns[trial.worker].leave.append(trial.key)
        if free[target] > 0:
            free[target] -= 1
        else:
            turns[target].over.remove(worst[target].pop().key)
        if trial.state.migrates:
            turns[target].width -= 1
    return sent


def _may_move(trial: Trial, turns: Mapping[str, Turns]) -> bool:
    """Return whether a trial is on no worker, or waits where others have the threads."""
    if trial.state.migrates:
        return trial.state.waits
    turn = turns.get(trial.worker)
    if turn is None or not (trial.checkpoint.usable and trial.state.waits):
        return False
    return trial.key in turn.order[turn.width :] and trial.key not in turn.leave


def _ahead(
    trials: Trials, at: Mapping[str, list[Trial]], quotas: Mapping[str, WorkerQuota]
) -> dict[str, float]:
    """Return how much more work each worker has than the one with the least, in trials."""
    one = max(trials.seconds_of_one(), 1e-9)
    work = {
        worker: sum(map(trials.seconds_left, there)) / max(quotas[worker].threads, 1)
        for worker, there in at.items()
    }
    least = min((work[w] for w, quota in quotas.items() if not quota.crowded), default=0.0)
    return {worker: (seconds - least) / one for worker, seconds in work.items()}


def _rank(trial: Trial) -> tuple[bool, bool, float, int, float, str]:
    """Return the sort key of a trial on its worker, first served first."""
    first = not trial.shared and not trial.leads
    return (first, not trial.in_turn, *trial.standing, _score(trial), trial.name)


def _score(trial: Trial) -> float:
    return trial.score if not math.isnan(trial.score) else math.inf


def _is_over(trials: Trials, last: list[Trial]) -> bool:
    """Return whether none of the last trials of a worker is expected to be the best.

    Then the longest come first, so that the threads of the worker end together.
    """
    return all(trial.candidate is None and trial.score > trials.best_final for trial in last)
