"""Quotas of searches: the threads and the memory that they may use on each worker."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import product
from time import monotonic

from distributed.core import Status
from distributed.scheduler import Scheduler, TaskState, WorkerState

from dask_slaq.core.search_settings import FEWEST_REPORTS
from dask_slaq.core.trials import (
    MANY_MODELS,
    MEMORY_PART,
    MOVING_PART,
    Trial,
    TrialState,
    WorkerQuota,
    admitted,
)
from dask_slaq.scheduler.pools import Pool, TaskTracker, blocked, load
from dask_slaq.scheduler.trials.running import RunningSearch


class Quotas:
    """What the searches in `running` may use on workers, and the memory that is known of these.

    On a worker, beside those that wait there must be room for `least_room` models per thread. With
    less, those that may leave it do; one more begins before they have left. A state is large above
    the part `large` of a worker's memory.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pools: Mapping[str, Pool],
        tracker: TaskTracker,
        running: Mapping[str, RunningSearch],
        *,
        least_room: int = 2,
        large: float = 0.02,
    ) -> None:
        self._least_room, self._large = least_room, large
        self._scheduler, self._pools = scheduler, pools
        self._tracker, self._running = tracker, running
        # Threads that each search may use by the choice that is being made.
        self._planned: dict[str, int] = {}
        self._models: dict[str, _Models] = {}  # of each search, in the choice that is being made
        # Memory of workers in bytes, when they measured it on their clock, and their memory limit.
        self._memory: dict[str, tuple[float, float, int]] = {}
        self._dead: set[str] = set()  # workers that died of their memory
        # Memory of each worker before models began, and the least that was seen beside models with
        # large states: its process takes that without them, with the libraries that they need.
        self._bare: dict[str, tuple[float, float]] = {}
        # Seconds that workers live: those that tell so; and worker-seconds by workers lost so far.
        self.lives: dict[str, float] = {}
        self._seconds, self._lost = 0.0, 0

    # What is known of the memory of workers

    def see_workers(self) -> None:
        """Note the memory that workers take before the models of a search begin."""
        for ws in self._scheduler.workers.values():
            self._bare_memory(ws)

    def clear(self) -> None:
        """Forget all workers: no search runs."""
        for facts in (self._memory, self._dead, self._bare):
            facts.clear()

    def learn(
        self,
        search: RunningSearch,
        trial: Trial,
        ws: WorkerState,
        memory: float,
        at: float,
        grown: Sequence[float | None],
        *,
        first: bool,
    ) -> None:
        """Learn what models take from the bytes of `memory` that a worker had `at` its Unix time.

        It has `grown` by so many before each loss of a trial, None where it does not know; `first`
        is whether these are its first ones.
        """
        self._memory[ws.address] = memory, at, ws.memory_limit
        if trial.checkpoint.nbytes > self._large * (ws.memory_limit or math.inf):
            self._learn_bare(search, ws, memory)
        for bytes_ in grown:
            if bytes_ is not None:
                (search.model.begin if first else search.model.step)(bytes_)
            elif first:
                # Compared with the least that Dask has seen there within its last half minute.
                search.model.guess(memory - ws.memory.optimistic)
            first = False

    def leaves(self, worker: str, *, dies: bool) -> None:
        """Note that a worker leaves, or died: of its memory, if models took more than the target.

        Models without states that are there are lost.
        """
        trials = (t for search in self._running.values() for t in search.trials.alive.values())
        self._lost += any(
            t.worker == worker and not (t.state.migrates or t.checkpoint.reports) for t in trials
        )
        if not dies:
            return
        memory, _, limit = self._memory.get(worker, (0.0, 0.0, 0))
        if limit and memory > MEMORY_PART * limit:
            self._dead.add(worker)

    def forget_worker(self, worker: str) -> bool:
        """Forget a worker that left. If its memory was the reason, none waits on those like it.

        Returns whether it was.
        """
        self._bare.pop(worker, None)
        self.lives.pop(worker, None)
        *_, limit = self._memory.get(worker, (0,))
        if worker not in self._dead:
            return False
        self._dead.remove(worker)
        for search in self._running.values():
            search.deadly = max(search.deadly, limit)
        return True

    def _bare_memory(self, ws: WorkerState) -> float:
        """Return the bytes that the process of a worker takes without models."""
        before, beside = self._bare.setdefault(ws.address, (ws.memory.process, math.inf))
        return beside if beside < math.inf else before

    def _learn_bare(self, search: RunningSearch, ws: WorkerState, memory: float) -> None:
        """Learn how much of the memory of a worker its models do not take."""
        alive = search.trials.alive.values()
        held = sum(
            t.checkpoint.nbytes for t in alive if t.worker == ws.address and not t.state.migrates
        )
        before, beside = self._bare.get(ws.address, (0.0, math.inf))
        self._bare[ws.address] = before, min(beside, max(memory - held, before))

    def _fits(self, search: RunningSearch, ws: WorkerState) -> bool:
        """Return whether a worker has the memory for models that come and go, with their states."""
        largest = max((t.checkpoint.nbytes for t in search.trials.alive.values()), default=0)
        limit, bare = ws.memory_limit, self._bare_memory(ws)
        copies = ws.nthreads + 1  # one is read or written
        return not limit or (
            limit > search.deadly and bare + largest * copies < MOVING_PART * limit
        )

    def _memory_quota(self, search: RunningSearch, ws: WorkerState) -> tuple[bool, int]:
        """Return whether a worker is above its target, and how many models may begin there.

        More may always begin in threads that are free, as under plain Dask.
        """
        if ws.status != Status.running:
            return True, 0
        limit = ws.memory_limit
        if not limit:
            return False, MANY_MODELS
        if limit <= search.deadly:
            return True, 0
        memory, at, _ = self._memory.get(ws.address, (0.0, 0.0, 0))
        # A heartbeat may tell of what was before, for its monitor samples seldom.
        if at < ws.metrics.get("time", math.inf):
            memory = ws.memory.process
        left, unseen = MEMORY_PART * limit - memory, 0
        for models in self._models.values():
            left -= models.growth[ws.address]
            there, other = len(models.begun[ws.address]), models.search
            running = min(there, max(ws.nthreads - (load(ws) - there), 0))
            if other is search:
                unseen = running
            else:
                left -= running * (other.model.bytes(other.steps) or 0.0)
        return left < 0, admitted(search.model, search.steps, unseen, left)

    def _life_left(self, search: RunningSearch, ws: WorkerState, waits: int, risk: float) -> int:
        """Return how many more models may wait on a worker that may live shortly.

        There `waits` models do that have computed for `risk` seconds.
        """
        # Part of the life of a worker, if it tells it and if it is known by two that were lost,
        # which models that wait may have computed: without a state they begin anew if it leaves.
        life, part = self.lives.get(ws.address), 0.1
        if life is None and self._lost >= 2:
            life, part = self._seconds / self._lost, 0.015
        one = search.trials.seconds_of_one() if life else 0.0
        if not (life and one):
            return MANY_MODELS
        life *= ws.nthreads
        left = (part * life - risk) / (FEWEST_REPORTS * one / search.steps)
        return int(min(left, life / one - waits, MANY_MODELS))

    # A choice

    def divide(
        self, wanting: Collection[str], draining: Collection[str], seconds: float
    ) -> dict[str, dict[str, WorkerQuota]]:
        """Return the quotas of each search by name and worker.

        `wanting` are the jobs that have tasks for further threads, and `draining` the workers that
        are to be closed. The accounts are charged for the `seconds` since the last choice.
        """
        quotas_of: dict[str, dict[str, WorkerQuota]] = {}
        self._planned.clear()
        self._models = {name: _Models(search) for name, search in self._running.items()}
        # There is no choice while no search runs: more than two seconds do not count.
        self._seconds += len(self._scheduler.workers) * min(seconds, 2.0)
        for name, search in self._running.items():
            quotas = self._of(search, bool(set(wanting) - {name}), draining, seconds)
            quotas_of[name] = quotas
            self._planned[name] = sum(min(quota.threads, quota.wants) for quota in quotas.values())
        self._lend(quotas_of)
        for name, search in self._running.items():
            self._take_turns(search, quotas_of[name])
        return quotas_of

    def _of(
        self, search: RunningSearch, wanted: bool, draining: Collection[str], seconds: float
    ) -> dict[str, WorkerQuota]:
        """Return the quota for a search on every worker on which it has tasks.

        Its account is charged for the `seconds` since the last choice.
        """
        models = self._models[search.pool.name]
        places = models.places
        if self._tracker.records.models_move and models.may_move:
            places |= self._reachable(search)
        there = [ws for ws in map(self._scheduler.workers.get, places) if ws is not None]
        quotas = {ws.address: self._at(ws, models, ws.address in draining) for ws in there}
        used = sum(min(quotas[ws.address].used, ws.nthreads) for ws in there)
        search.account.update(search.pool.granted.share, used, seconds)
        if not search.pool.paused:
            self._limit(search, quotas, models.waits, wanted)
        return quotas

    def _at(self, ws: WorkerState, models: _Models, is_draining: bool) -> WorkerQuota:
        """Return the quota on a worker for the models of a search, before any limit."""
        search, address, quota = models.search, ws.address, WorkerQuota(0)
        trains, waits, begun = models.trains[address], models.waits[address], models.begun[address]
        running = max(ws.nthreads - (load(ws) - len(begun)), 0)
        late = search.blocked(begun, running, waits > 0)
        begun = [ts for ts in begun if ts not in late]
        quota.blocked = models.blocked[address] + len(late)
        stuck = min(blocked(ws), sum(bool(ts.resource_restrictions) for ts in begun))
        # One that waits there for a resource takes no thread from the trial that holds it.
        quota.guests = max(models.guests[address] - (blocked(ws) - stuck), 0)
        quota.used = trains + len(begun) - stuck + quota.guests
        quota.wants = quota.used + waits
        quota.begun = max(sum(_has_inputs(ts, ws) for ts in begun) - stuck, 0)
        if quota.blocked:  # what is there besides begins in no thread of theirs
            quota.begun = min(quota.begun, max(running - len(late), 0))
        quota.takes_new = search.takes_new(ws)
        quota.crowded, quota.admits = self._memory_quota(search, ws)
        if not models.may_move:
            left = self._life_left(search, ws, waits, models.risks[address])
            quota.crowded, quota.admits = quota.crowded or left < 0, min(quota.admits, max(left, 0))
        quota.closing = models.may_move and (ws.status != Status.running or is_draining)
        is_full = quota.admits < self._least_room * ws.nthreads
        quota.leaves = quota.closing or (is_full and models.are_cheap and self._fits(search, ws))
        if quota.leaves:
            quota.admits = MANY_MODELS
        if not search.pool.paused:
            quota.kept_idle = 0 if quota.admits else min(trains, ws.nthreads)
            others = max(load(ws) - quota.used - quota.blocked, 0)
            quota.threads = max(ws.nthreads - others, quota.kept_idle)
        return quota

    def _reachable(self, search: RunningSearch) -> set[str]:
        """Return the workers where any model of a search may go on."""
        everywhere = {ws.address for ws in self._scheduler.running}
        reachable = set[str]()
        for key in search.trials.alive:
            if (ts := self._scheduler.tasks.get(key)) is not None:  # type: ignore[call-overload]
                allowed = self._tracker.control.allowed(ts)
                if allowed is None:
                    return everywhere
                reachable.update(ws.address for ws in allowed)
        return reachable & everywhere

    def _limit(
        self,
        search: RunningSearch,
        quotas: dict[str, WorkerQuota],
        waits: Counter[str],
        wanted: bool,
    ) -> None:
        """Limit the quota of a search to what it is due, or let it claim threads that it is due."""
        pool, most = search.pool, self._most(search, wanted)
        due = most
        if wanted:
            due = min(
                max(search.account.due(pool.granted.share), int(pool.is_behind(monotonic()))), most
            )
        total = sum(quota.threads for quota in quotas.values())
        # Where other tasks are, threads are given up last: they come back there last. So are those
        # that are used, and before these those for models that wait: one that is about to end does
        # not leave.
        ranked = sorted(quotas, key=lambda a: (-quotas[a].threads, a))
        for spared, address in product(("wants", "used", "kept_idle"), ranked):
            over, quota = total - due, quotas[address]
            if over <= 0:
                break
            least = max(quota.kept_idle, getattr(quota, spared))
            cut = max(min(over, quota.threads - least), 0)
            quota.threads -= cut
            total -= cut
        if not wanted or total >= due:
            return
        for address in sorted(quotas, key=lambda a: (-waits[a], a)):
            more = min(
                due - total,
                waits[address],
                self._scheduler.workers[address].nthreads - quotas[address].threads,
            )
            if more > 0:
                quotas[address].threads += more
                total += more

    def _take_turns(self, search: RunningSearch, quotas: dict[str, WorkerQuota]) -> None:
        """Let no trial begin until another one has stopped on whose worker threads are given up.

        That one trains on until its next report, and the limit of its owner holds meanwhile.
        """
        most, promised = self._within_limit(search), search.promised.by_worker
        if most == math.inf:
            return
        busy = {a: quota.used + promised.get(a, 0) for a, quota in quotas.items()}
        begins = {a: min(quota.threads, quota.wants) - busy[a] for a, quota in quotas.items()}
        over = sum(busy.values()) + sum(max(n, 0) for n in begins.values()) - most
        for address in sorted(begins, key=lambda a: (-begins[a], a)):
            if over <= 0 or begins[address] <= 0:
                break
            cut = min(over, begins[address])
            quotas[address].threads = busy[address] + begins[address] - int(cut)
            over -= cut

    def _lend(self, quotas_of: Mapping[str, dict[str, WorkerQuota]]) -> None:
        """Give threads that no search is due, and no job wants, to the searches owed most.

        What searches are due seldom adds up to all threads of a worker.
        """
        pools = self._pools.values()
        if len(quotas_of) < 2 or any(pool.ready and not pool.paused for pool in pools):
            return
        searches = [s for s in self._running.values() if not s.pool.paused]
        searches.sort(key=lambda s: -s.account.balance)
        for address in sorted({a for quotas in quotas_of.values() for a in quotas}):
            ws = self._scheduler.workers[address]
            there = [quotas[address] for quotas in quotas_of.values() if address in quotas]
            others = max(load(ws) - sum(quota.used for quota in there), 0)
            free = ws.nthreads - others - sum(min(quota.threads, quota.wants) for quota in there)
            for search in searches:
                name = search.pool.name
                quota = quotas_of[name].get(address)
                if quota is None or free <= 0:
                    continue
                left = self._most(search, wanted=False) - self._planned[name]
                more = max(min(free, quota.wants - quota.threads, left), 0)
                quota.threads += more
                self._planned[name] += more
                free -= more

    def _most(self, search: RunningSearch, wanted: bool) -> int:
        """Return the maximum number of threads of a search, by its cap and its owner's limit.

        The cap holds while others want the threads; if none are lent, in any case.
        """
        holds = wanted or not self._tracker.records.lends
        most = max(int(min(search.pool.granted.most, 10**9)), 1) if holds else 10**9
        return int(min(most, self._within_limit(search)))

    def _within_limit(self, search: RunningSearch) -> float:
        """Return the number of threads that the limits of its owner leave to a search."""
        pool, most = search.pool, math.inf
        mine = sum(ts in pool.inner for ts in pool.running) if pool.inner else 0.0
        for group in pool.group.line() if pool.group is not None else ():
            if group.most == math.inf:
                continue
            used = mine
            for other in group.pools:
                if other is not pool:
                    now = other.threads - other.lent + other.promised
                    used += max(now, self._planned.get(other.name, 0))
            most = min(most, max(math.floor(group.most - used), 0))
        return most


class _Models:
    """Models of a search by what they do on each worker, and what they still take there."""

    def __init__(self, search: RunningSearch) -> None:
        self.search, trials, alive = search, search.trials, search.trials.alive.values()
        self.trains = Counter(t.worker for t in alive if t.state is TrialState.TRAINS)
        self.blocked = Counter(t.worker for t in alive if t.state.blocked)
        self.waits = Counter(t.worker for t in alive if t.state.stays)
        # Tasks that have not reported; some of them go on from a state.
        self.begun, self.guests = defaultdict[str, list[TaskState]](list), Counter[str]()
        for ts in search.begun.values():  # work stealing moves some
            if ts.processing_on is not None and search.is_guest(ts.key):
                self.guests[ts.processing_on.address] += 1
            elif ts.processing_on is not None:
                self.begun[ts.processing_on.address].append(ts)
        self.places = {*self.trains, *self.waits, *self.begun, *self.guests, *self.blocked}
        # Seconds that are lost with a worker, and bytes by which models still grow there.
        self.risks, self.growth = defaultdict[str, float](float), defaultdict[str, float](float)
        steps, per_step = search.steps, search.model.per_step
        for t in alive:
            self.risks[t.worker] += t.times.computed * t.state.stays
            self.growth[t.worker] += per_step * max(steps - t.reports, 1)
        # Whether they may leave their worker, and mostly soon go on elsewhere.
        self.may_move = trials.move
        dear = [trials.is_dear(t, search.speed.bandwidth) for t in alive if t.reports]
        self.are_cheap = self.may_move and 2 * sum(dear) <= len(dear)


def _has_inputs(ts: TaskState, ws: WorkerState) -> bool:
    """Return whether the inputs of a task have arrived on its worker."""
    return all(ws in (dep.who_has or ()) for dep in ts.dependencies)
