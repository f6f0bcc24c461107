"""Tracking of tasks, as they move through the states of Dask, and are sent to workers."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic, time
from typing import Any

from distributed.scheduler import TaskState, WorkerState

from dask_slaq.core.dispatch import (
    ANY,
    OWED,
    DurationEstimate,
    Handover,
    TaskConstraints,
    Way,
    constants,
)
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGang
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.records import TaskRecords
from dask_slaq.scheduler.pools.scheduler_patch import ReadyTasks, bound_to, is_dasks, is_direct


class TaskTracker(TaskRecords, ReadyTasks):
    """Follows the transitions of all tasks and keeps the pools of their jobs up to date."""

    @property
    def lends(self) -> bool:
        """Whether jobs may use more threads than their cap while nobody else wants these."""
        return self._order.lend

    def take_ends(self) -> Iterable[tuple[DurationEstimate, str, str, float]]:
        """Return the newest ends of tasks since the last call, for the speeds of workers."""
        ends, self._ends = self._ends, deque(maxlen=self._ends.maxlen)
        return ends

    # What Dask asks of ready tasks

    def in_pool(self, ts: TaskState) -> bool:
        """Return whether a ready task waits in a pool until it is sent, or for its search."""
        if ts.key in self.migrating:
            return True
        pool = self.pool_of.get(ts.key) if self.holding else None
        return pool is not None and self._waits(pool, ts, is_direct(ts))

    def _waits(self, pool: Pool, ts: TaskState, direct: bool) -> bool:
        if not direct or (self.gangs.of_task and self.gangs.is_open(ts)):
            return True
        strict = not self._order.lend and pool.granted.most < math.inf
        return (strict or pool.holds_all) and not is_dasks(ts)

    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task must wait: in a pool, or as its label is full."""
        return self.in_pool(ts) or (bool(self.limits.most) and self.limits.is_held(ts))

    def asked(self, ts: TaskState) -> Handover | bool:
        """Return the `Handover` of a ready task to queue it, True to hold it, False for Dask.

        If no worker could run it, Dask is to see that, and waits in ``no-worker``. There also waits
        what has a label with a limit, or moves between workers.
        """
        pool = self.pool_of.get(ts.key) if self.holding else None
        if self.migrating and ts.key in self.migrating:
            return True
        if pool is not None and self._waits(pool, ts, direct := is_direct(ts)):
            possible = ts._queueable
            if ts.worker_restrictions or ts.resource_restrictions or ts.host_restrictions:
                possible = possible and bool(self.scheduler.valid_workers(ts))
            return pool.handover_of(ts, direct) if possible else True
        return bool(self.limits.most) and self.limits.label_of(ts) is not None

    def send_at_once(
        self, task: Handover, plain: Callable[[TaskState], WorkerState | None]
    ) -> WorkerState | None:
        """Return the worker that `plain` chooses for a short task with inputs; None to hold it.

        A round trip would take as long. It is sent if it is expected to start soon, in its turn,
        and no job that comes before its own waits for a thread.
        """
        pool, ts, like = task.pool, task.ts, task.like
        assert isinstance(pool, Pool)
        if constants.SHORT < like.usual < math.inf or pool.gang or pool.group is not None:
            return None
        if ts.resource_restrictions or (self.limits.most and self.limits.label_of(ts)):
            return None
        now, order = monotonic(), self._order
        if (key := order.key(pool, now)) is None or order.has_before(key, now):
            return None
        ws = plain(ts)
        if ws is None or self.sent.on(ws).free_in(now) > constants.SOON:
            return None
        task.worker, task.preferred, task.key, task.why = ws.address, (ws.address,), key, "short"
        task.order, task.tag = (*key[:-1], next(self._count)), pool.service
        task.expected = min(like.usual, constants.SHORT)  # while it is unknown, few are sent
        task.soonest, task.entitled = like.soonest, key.entitled or pool.granted.most < 1
        if not (pool.ready or pool.running):
            self._is_back(pool)
        task.way = Way.GOES
        self.control.restrict(task)
        self.control.give_priority(ts)
        self.rounds.look_at.add(ws.address)
        return ws

    def came(self, task: Handover) -> None:
        """File a task that has come to the queue."""
        self._ready(task)
        self.control.lay_aside(task.ts)

    def left(self, task: Handover) -> None:
        """Follow a task that leaves the queue, sent or not."""
        self.control.give_back(task.ts)
        if (pool := self.pool_of.get(task.ts.key)) is not None:
            self._not_ready(pool, task.ts)

    def prepare(self, task: Handover) -> None:
        """Restrict a task and set its priority: Dask takes it now."""
        self.control.begin(task)

    def slots_opened(self) -> None:
        """Send tasks soon: a slot may have opened."""
        self.rounds.soon()

    # Transitions

    def transition(self, key: Any, start: str, finish: str, kwargs: Mapping[str, Any]) -> None:
        """Follow one transition of any task; the last arguments are those of the plugin's hook."""
        pool = self.pool_of.get(key)
        if finish == "forgotten" and self.migrating:
            self.migrating.pop(key, None)
        if pool is None:
            if start == "processing":
                self._freed(kwargs.get("worker"))
            if finish == "processing" and self.holding:
                self._passed(self.scheduler.tasks[key])
            return
        ts = self.scheduler.tasks[key]
        if start == "processing":
            worker = kwargs.get("worker")
            self._ended(pool, ts, kwargs.get("startstops") or (), str(worker))
            self._freed(worker)
        elif start == "no-worker" and (ts in pool.ready or self._wanted):
            self._not_ready(pool, ts)  # not sent by us
        if finish == "processing":
            self._started(pool, ts)
        elif finish == "no-worker":
            if key not in self.migrating and self.in_pool(ts):
                task = pool.handover_of(ts, is_direct(ts))
                task.rootish = self._patch.is_rootish(ts)
                self._ready(task)
        elif finish == "waiting":
            pool.unfinished.add(ts)
            for each in self._wanted.get(ts, ()):
                for dep in ts.waiting_on or ():
                    self._want(each, dep)
        elif start != "memory" and finish != "queued":
            pool.unfinished.discard(ts)
            # One that is released while it is wanted, as its worker died, is computed anew.
            anew = finish == "released" and bool(ts.who_wants or ts.waiters)
            if not anew and (self._submitter or self._wanted or self.gangs.of_task):
                self._is_done(ts)
        if finish == "forgotten":
            self._forget(ts)
            pool.drop(ts)

    def _ready(self, task: Handover) -> None:
        """File a ready task in its pool, and in those that wait for it."""
        pool, ts = task.pool, task.ts
        assert isinstance(pool, Pool)
        filed = not self.gangs.of_task or not self.gangs.is_open(ts)
        label = self.limits.label_of(ts) if self.limits.most else None
        pool.describe(task, self.scheduler, next(self._count), label)
        if task.direct:
            task.constraints = self._constraints_of_direct(ts, task.constraints)
        wanted = self._wanted.get(ts, ()) if self._wanted and filed else ()
        for each in (pool, *wanted):
            if not (each.ready or each.running):
                self._is_back(each)
            each.push(task, filed=filed)
        self._wake_for(task)

    def _constraints_of_direct(
        self, ts: TaskState, constraints: TaskConstraints
    ) -> TaskConstraints:
        """Return the constraints of a task that goes to its workers as soon as a limit lets it."""
        allowed: set[str] | None = bound_to(ts)
        if not allowed and (ts.host_restrictions or ts.loose_restrictions):
            valid = self.control.allowed(ts)
            allowed = None if valid is None else {ws.address for ws in valid}
        elif not allowed:
            return constraints
        constraints = constraints._replace(allowed=None if allowed is None else frozenset(allowed))
        return ANY if constraints == ANY else constraints

    def _wake_for(self, task: Handover) -> None:
        """Fill slots soon, as a task has become ready, if a worker is open for it."""
        rounds = self.rounds
        if not task.preferred:
            for pool in self._index.sent_by_dask:  # it may overtake what Dask has sent there
                rounds.look_at.update(pool.sent_by_dask)
        elif rounds.due or rounds.dispatcher.free:
            rounds.look_at.update(task.preferred)
        elif not any(map(rounds.opens, task.preferred)):
            return
        rounds.soon()

    def _not_ready(self, pool: Pool, ts: TaskState) -> None:
        pool.pop(ts)
        for each in self._wanted.get(ts, ()) if self._wanted else ():
            each.pop(ts)

    def _is_back(self, pool: Pool) -> None:
        """Record that a pool has tasks again, and cap its credit of service.

        It keeps what it lacked when it went idle, less its share of the idle time, but no less than
        `SLACK` seconds of its share.
        """
        gaps = pool.gaps
        away = monotonic() - gaps.left_at
        if math.isfinite(away):
            gaps.width *= constants.NARROWER
            gaps.mean = away if math.isinf(gaps.mean) else gaps.mean + 0.5 * (away - gaps.mean)
            gaps.spell += 0.5 * (gaps.computed - gaps.spell)
            coming = self._index.coming
            (coming.add if gaps.mean < constants.BACK_WITHIN else coming.discard)(pool)
        gaps.computed, share = 0.0, pool.granted.share / pool.weight
        owed = max(constants.SLACK * share, gaps.lacked - min(away, 1e9) * share)
        pool.service = max(pool.service, self.served - owed)
        pool.touch()

    def send(self, task: Handover) -> bool:
        """Send a task to the worker that was chosen for it. Returns whether it is there."""
        pool, ts, key = task.pool, task.ts, task.key
        assert isinstance(pool, Pool) and key is not None
        submitter = self.pool_of[ts.key]
        if submitter is not pool:  # the job that waits for it pays for it
            self._order.remove(task)  # in both
            self._part(ts, pool)
            pool.adopt(ts)
            task.why = f"{task.why}; submitted by {submitter.name}"
        if self.gangs.of_task and (gang := self.gangs.of_task.get(ts)) is not None:
            gang.closed = True
        task.order = (*key[:-1], next(self._count))
        self.control.send(task, f"{pool.name}: {task.why}")
        if ts.processing_on is not None:
            return True
        if ts.state in self.control.WAITING and ts not in pool.ready and self.in_pool(ts):
            self._order.put_back(task)  # Dask did not take it
        return False

    def send_back(self, ts: TaskState, ws: WorkerState) -> bool:
        """Send a model that has left its worker to another one. Returns whether it is there."""
        pool = self.pool_of[ts.key]
        task = Handover(pool, ts, pool.durations.like(ts), worker=ws.address)
        task.workers, task.order = frozenset({ws.address}), (-math.inf, next(self._count))
        task.why = "a model goes on"
        self.control.send(task, task.why)
        if ts.processing_on is not ws:
            return False
        self.migrating.pop(ts.key, None)
        return True

    def leave_to_dask(self, tasks: Iterable[TaskState]) -> None:
        """Leave models that have left their worker to Dask, or to their pool."""
        some = list(tasks)
        for ts in some:
            self.migrating.pop(ts.key, None)
        self.control.release(some, "a model goes on")

    def _started(self, pool: Pool, ts: TaskState) -> None:
        ws, task = ts.processing_on, self.control.sent.get(ts)
        assert ws is not None, f"{ts} is processing on no worker"
        if task is not None and task.way is Way.GOES:
            task.way = Way.SENT
            if task.own_priority is not None:
                self.control.take_priority(ts)
        if task is None or task.key is None:
            if ts in pool.ready:  # Dask failed to send it before
                self._not_ready(pool, ts)
            self._record(pool, ts)
            self.rounds.look_at.add(ws.address)
            self._bind(pool, ts.key, ws, "sent by Dask" if task is None else task.why, "passed")
            return
        self._order.sent(task)
        self.sent.put(task, ws)
        self._bind(pool, ts.key, ws, task.why, "floor" if task.key.standing == OWED else "")

    def _bind(self, pool: Pool, key: Any, ws: WorkerState, why: str, reason: str = "") -> None:
        reason = reason or ("granted" if ws.address in pool.granted.workers else "lent")
        self._bound(Binding(time(), key, pool.name, ws.address, reason, why))

    def _passed(self, ts: TaskState) -> None:
        """Look at the worker to which Dask has sent a task."""
        if ts.processing_on is not None:
            self.rounds.look_at.add(ts.processing_on.address)

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any], worker: str) -> None:
        key, control = ts.key, self.control
        (left, charged), seconds = (math.inf, 0.0), 0.0
        if self.seceded_at:
            left, charged = self.seceded_at.pop(key, (left, charged))
        computed = None
        for run in startstops:
            # A key that is computed again on the same worker brings its earlier runs along.
            if run["action"] == "compute":
                computed = run
        waited = self.waited.pop(key, 0.0) if self.waited else 0.0
        if computed is not None and self.learned.usual:
            self.learned.ended(ts, computed["stop"] - computed["start"], waited)
        sent = pool.running.get(ts)
        at_once = len(pool.ready) + len(pool.running) + pool.waiting
        if key in self.charged_until:
            since = self.charged_until.pop(key)
            if since is not None and computed is not None:
                seconds = max(computed["stop"] - since, 0.0)
        elif computed is not None:
            seconds = max(min(computed["stop"], left) - computed["start"], 0.0)
            like = pool.durations.like(ts) if sent is None else sent.like
            self._ends.append((like, ts.prefix.name, worker, seconds))
            like.observe(seconds)
            seconds *= sent.threads if sent is not None else 1.0
        self.ended += 1
        self.took += seconds
        self._free_thread(pool, ts, seconds - charged)
        if self._inner:
            self._inner.pop(ts, None)
        if pool.holds:
            pool.holds.pop(ts, None)
        pool.ended, pool.used = pool.ended + (computed is not None), pool.used + seconds
        if sent is not None and sent.expected == math.inf:
            seconds -= sent.ahead  # a member of a gang was charged while it ran
        self.charge(pool.name, seconds, at_once)
        if ts in control.sent:
            control.restore(ts)
        if control.excused:
            control.blame(ts)

    def _free_thread(self, pool: Pool, ts: TaskState, seconds: float) -> None:
        """Free the thread of a task, and charge its `seconds` instead of the expected ones."""
        sent = pool.running.get(ts)
        if sent is not None:
            self._leave(sent)
            self.served = max(self.served, sent.tag)
        pool.charge(seconds - (sent.ahead if sent is not None else 0.0), sent)
        pool.gaps.computed += seconds
        if not (pool.running or pool.ready):
            pool.gaps.left_at, pool.gaps.lacked = monotonic(), self.served - pool.service

    def _freed(self, worker: str | None) -> None:
        """Look at a worker where a task has ended; at all if None."""
        rounds = self.rounds
        if worker is None:
            rounds.look_at.update(self.scheduler.workers)
        else:
            slots = self.sent.by_worker.get(worker)
            starts = slots.thread_freed(monotonic()) if slots is not None and slots.queue else None
            if starts is not None:
                self._charge_ahead(starts)
                if self.holding and not rounds.opens(worker):
                    return  # what was sent ahead has taken the thread
            rounds.look_at.add(worker)
        if self._index.pools:
            rounds.soon()

    def look(self, workers: Collection[str]) -> None:
        """Look at workers where a task may be sent that could not be before."""
        self.rounds.look_at.update(workers)
        if workers and self._index.pools:
            self.rounds.soon()

    def let_go(self, gang: PinnedGang) -> None:
        """Leave the members of a gang to Dask, since they cannot start together."""
        gang.closed = True
        self.control.release([ts for ts in gang.members if ts.processing_on is None], "gang let go")

    def charge_gangs(self) -> None:
        """Charge the members of gangs that run for the threads that they have used so far."""
        now = monotonic()
        for ts in self.gangs.running():
            pool = self.pool_of.get(ts.key)
            sent = pool.running.get(ts) if pool is not None else None
            if sent is None or sent.expected < math.inf:
                continue  # it was let go, and is charged when it ends
            if pool is not None and sent.start is not None:
                seconds = (now - sent.start) * sent.threads - sent.ahead
                sent.ahead += seconds
                pool.charge(seconds, sent)
                self.charge(pool.name, seconds, pool.demand)

    def uncharged(self, ts: TaskState, seconds: float) -> float:
        """Return the core-seconds of a running task for which nobody was charged yet.

        It began `seconds` ago, as of its worker's heartbeat.
        """
        if ts.key in self.charged_until:
            since = self.charged_until[ts.key]
            return 0.0 if since is None else max(time() - since, 0.0)
        pool = self.pool_of.get(ts.key) if ts in self.gangs.of_task else None
        if pool is not None and (sent := pool.running.get(ts)) and sent.expected == math.inf:
            return 0.0  # gangs are charged while they run
        return seconds

    def charged_to(self, key: Any) -> float:
        """Return the Unix time up to which a task of a pool is charged to it, whenever it ends."""
        return math.inf if key in self.charged_until else self.seceded_at.get(key, (math.inf,))[0]

    # Tasks that give up their thread, or are moved

    def seceded(self, key: Any) -> None:
        """Free the thread of a task that seceded, and charge its job for the time until now."""
        pool, ts = self.pool_of.get(key), self.scheduler.tasks.get(key)
        if pool is not None and ts is not None:
            sent, used = pool.running.get(ts), 0.0
            if sent is not None and sent.start is not None and key not in self.charged_until:
                used = monotonic() - sent.start
            self.seceded_at[key] = time(), used
            self._free_thread(pool, ts, used)
            self._lend(ts)
        self._freed(ts.processing_on.address if ts is not None and ts.processing_on else None)

    def charge_part(
        self, pool: Pool, ts: TaskState, seconds: float, waited: float, until: float | None
    ) -> None:
        """Charge the core-seconds that a task has reported to have computed, after it `waited`.

        `until` is the Unix time of the report; None if the task waits from then on.
        """
        self.waited[ts.key] = self.waited.get(ts.key, 0.0) + waited
        self.charged_until[ts.key] = until
        sent = pool.running.get(ts)
        pool.charge(seconds - (sent.ahead if sent is not None else 0.0), sent)
        if sent is not None:
            sent.ahead = 0.0  # from now on its reports are charged
        self.charge(pool.name, seconds, pool.demand)

    def gave_up_thread(self, ts: TaskState, *, idle: bool = False) -> None:
        """Free the thread of a task that waits in a report, `idle`, or that computes without it."""
        (self.control.excuse if idle else self.control.blame)(ts)
        pool, ws = self.pool_of.get(ts.key), ts.processing_on
        if pool is not None and ws is not None and self.control.rest(ts):
            self._free_thread(pool, ts, 0.0)
            self._lend(ts)
            self._freed(ws.address)

    def resumed(self, ts: TaskState) -> None:
        """Take a thread for a task that goes on after it waited in a report."""
        self.control.blame(ts)
        pool, ws = self.pool_of.get(ts.key), ts.processing_on
        if pool is not None and ws is not None and self.control.resume(ts):
            self._record(pool, ts)
            self._lend(ts)
            self._passed(ts)

    def stealing(self, event: Any) -> None:
        """Follow an event of work stealing: which tasks it asks for, or what came of one of them.

        Where a task goes, it comes before other tasks as it did where it was sent.
        """
        match event:
            case ("request", *_):
                stealing = self.scheduler.extensions.get("stealing")
                for ts in () if stealing is None else stealing.in_flight:
                    self.control.give_priority(ts)
            case (_, key, *_):
                with contextlib.suppress(TypeError):  # of a client, whose key is none
                    hash(key)
                    self._moved(key)

    def _moved(self, key: Any) -> None:
        """Follow a task that has another worker now, if it has."""
        ts, pool = self.scheduler.tasks.get(key), self.pool_of.get(key)
        if ts is None or pool is None:
            return
        self.control.take_priority(ts)
        sent, after = pool.running.get(ts), ts.processing_on
        if sent is None or after is None or sent.worker == after.address:
            return
        before = sent.worker
        self._leave(sent)
        self._enter(pool, ts, sent)
        self._bind(pool, key, after, "by work stealing")
        self.rounds.look_at |= {before, after.address}
        self.rounds.soon()
