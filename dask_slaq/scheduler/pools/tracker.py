"""Tracking of tasks, as they move through the states of Dask, and are sent to workers."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic, time
from typing import Any

from distributed.scheduler import Scheduler, TaskState, WorkerState

from dask_slaq.core.dispatch import ANY, OWED, Handover, Order, TaskConstraints, Way, constants
from dask_slaq.scheduler.pools.charges import Charges
from dask_slaq.scheduler.pools.dispatch_rounds import DispatchRounds
from dask_slaq.scheduler.pools.label_limits import Limits
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGang
from dask_slaq.scheduler.pools.placed_by_dask import bound_to, is_direct
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.queue import ReadyTasks
from dask_slaq.scheduler.pools.records import TaskRecords
from dask_slaq.scheduler.pools.slots import SentTasks
from dask_slaq.scheduler.pools.task_control import TaskControl


class TaskTracker(ReadyTasks):
    """Follows the transitions of all tasks and keeps the pools of their jobs up to date.

    `bound` is called with the `Binding` of every task that goes to a worker.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        control: TaskControl,
        records: TaskRecords,
        charges: Charges,
        sent: SentTasks,
        rounds: DispatchRounds,
        order: Order,
        limits: Limits,
        bound: Callable[[Binding], None],
    ) -> None:
        self.scheduler, self.control, self.records = scheduler, control, records
        self.charges, self.sent, self.rounds, self._wakes = charges, sent, rounds, rounds.wakes
        self._order, self._index, self.limits, self._bound = order, order.waiting, limits, bound
        self._pool_of, self._gangs, self._numbers = records.pool_of, records.gangs, records.numbers
        # Virtual time of fair queueing: the highest service of a pool at which a task that has
        # ended was sent, in core-seconds over weight.
        self.served = 0.0

    # What Dask asks of ready tasks

    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task must wait: in a pool, or as its label is full."""
        return self.records.in_pool(ts) or (bool(self.limits.most) and self.limits.is_held(ts))

    def asked(self, ts: TaskState) -> Handover | bool:
        """Return the `Handover` of a ready task to queue it, True to hold it, False for Dask.

        If no worker could run it, Dask is to see that, and waits in ``no-worker``. There also waits
        what has a label with a limit, or moves between workers.
        """
        pool = self._pool_of.get(ts.key) if self.records.holding else None
        if self.records.migrating and ts.key in self.records.migrating:
            return True
        if pool is not None and self.records.waits(pool, ts, direct := is_direct(ts)):
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
        if constants.SHORT_SECONDS < like.usual < math.inf or pool.gang or pool.group is not None:
            return None
        if ts.resource_restrictions or (self.limits.most and self.limits.label_of(ts)):
            return None
        now, order = monotonic(), self._order
        if (key := order.key(pool, now)) is None or order.has_before(key, now):
            return None
        ws = plain(ts)
        if ws is None or self.sent.on(ws).free_in(now) > constants.SOON_SECONDS:
            return None
        task.worker, task.preferred, task.key, task.why = ws.address, (ws.address,), key, "short"
        task.order, task.tag = (*key[:-1], next(self._numbers)), pool.service
        # While it is unknown, few are sent.
        task.expected = min(like.usual, constants.SHORT_SECONDS)
        task.soonest, task.entitled = like.soonest, key.entitled or pool.granted.most < 1
        if not (pool.ready or pool.running):
            self._is_back(pool)
        task.way = Way.GOES
        self.control.restrict(task)
        self.control.give_priority(ts)
        self._wakes.look_at.add(ws.address)
        return ws

    def came(self, task: Handover) -> None:
        """File a task that has come to the queue."""
        self._ready(task)
        self.control.lay_aside(task.ts)

    def left(self, task: Handover) -> None:
        """Follow a task that leaves the queue, sent or not."""
        self.control.give_back(task.ts)
        if (pool := self._pool_of.get(task.ts.key)) is not None:
            self._not_ready(pool, task.ts)

    def prepare(self, task: Handover) -> None:
        """Restrict a task and set its priority: Dask takes it now."""
        self.control.begin(task)

    def slots_opened(self) -> None:
        """Send tasks soon: a slot may have opened."""
        self._wakes.soon()

    # Transitions

    def transition(self, key: Any, start: str, finish: str, kwargs: Mapping[str, Any]) -> None:
        """Follow one transition of any task; the last arguments are those of the plugin's hook."""
        pool = self._pool_of.get(key)
        if finish == "forgotten" and self.records.migrating:
            self.records.migrating.pop(key, None)
        if pool is None:
            if start == "processing":
                self._freed(kwargs.get("worker"))
            if finish == "processing" and self.records.holding:
                self._passed(self.scheduler.tasks[key])
            return
        ts = self.scheduler.tasks[key]
        if start == "processing":
            worker = kwargs.get("worker")
            self._ended(pool, ts, kwargs.get("startstops") or (), str(worker))
            self._freed(worker)
        elif start == "no-worker" and (ts in pool.ready or self.records.wanted):
            self._not_ready(pool, ts)  # not sent by us
        if finish == "processing":
            self._started(pool, ts)
        elif finish == "no-worker":
            if key not in self.records.migrating and self.records.in_pool(ts):
                task = pool.handover_of(ts, is_direct(ts))
                task.rootish = type(self.scheduler).is_rootish(self.scheduler, ts)
                self._ready(task)
        elif finish == "waiting":
            pool.unfinished.add(ts)
            for each in self.records.wanted.get(ts, ()):
                for dep in ts.waiting_on or ():
                    self.records.want(each, dep)
        elif start != "memory" and finish != "queued":
            pool.unfinished.discard(ts)
            # One that is released while it is wanted, as its worker died, is computed anew.
            anew = finish == "released" and bool(ts.who_wants or ts.waiters)
            if not anew and (self.records.submitter or self.records.wanted or self._gangs.of_task):
                self.records.is_done(ts)
        if finish == "forgotten":
            self.records.forget(ts)
            self.charges.forget(key)
            pool.drop(ts)

    def _ready(self, task: Handover) -> None:
        """File a ready task in its pool, and in those that wait for it."""
        pool, ts = task.pool, task.ts
        assert isinstance(pool, Pool)
        filed = not self._gangs.of_task or not self._gangs.is_open(ts)
        label = self.limits.label_of(ts) if self.limits.most else None
        pool.describe(task, self.scheduler, next(self._numbers), label)
        if task.direct:
            task.constraints = self._constraints_of_direct(ts, task.constraints)
        wanted = self.records.wanted.get(ts, ()) if self.records.wanted and filed else ()
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
        wakes, rounds = self._wakes, self.rounds
        if not task.preferred:
            for pool in self._index.sent_by_dask:  # it may overtake what Dask has sent there
                wakes.look_at.update(pool.sent_by_dask)
        elif wakes.due or rounds.dispatcher.free:
            wakes.look_at.update(task.preferred)
        elif not any(map(rounds.opens, task.preferred)):
            return
        wakes.soon()

    def _not_ready(self, pool: Pool, ts: TaskState) -> None:
        pool.pop(ts)
        for each in self.records.wanted.get(ts, ()) if self.records.wanted else ():
            each.pop(ts)

    def _is_back(self, pool: Pool) -> None:
        """Record that a pool has tasks again, and cap its credit of service.

        It keeps what it lacked when it went idle, less its share of the idle time, but no less than
        `SLACK_SECONDS` seconds of its share.
        """
        gaps = pool.gaps
        away = monotonic() - gaps.left_at
        if math.isfinite(away):
            gaps.width *= 0.7
            gaps.mean = away if math.isinf(gaps.mean) else gaps.mean + 0.5 * (away - gaps.mean)
            gaps.spell += 0.5 * (gaps.computed - gaps.spell)
            coming = self._index.coming
            (coming.add if gaps.mean < constants.BACK_SECONDS else coming.discard)(pool)
        gaps.computed, share = 0.0, pool.granted.share / pool.weight
        owed = max(constants.SLACK_SECONDS * share, gaps.lacked - min(away, 1e9) * share)
        pool.service = max(pool.service, self.served - owed)
        pool.touch()

    def send(self, task: Handover) -> bool:
        """Send a task to the worker that was chosen for it. Returns whether it is there."""
        pool, ts, key = task.pool, task.ts, task.key
        assert isinstance(pool, Pool) and key is not None
        submitter = self._pool_of[ts.key]
        if submitter is not pool:  # the job that waits for it pays for it
            self._order.remove(task)  # in both
            self.records.part(ts, pool)
            pool.adopt(ts)
            task.why = f"{task.why}; submitted by {submitter.name}"
        if self._gangs.of_task and (gang := self._gangs.of_task.get(ts)) is not None:
            gang.closed = True
        task.order = (*key[:-1], next(self._numbers))
        self.control.send(task, f"{pool.name}: {task.why}")
        if ts.processing_on is not None:
            return True
        if ts.state in self.control.WAITING and ts not in pool.ready and self.records.in_pool(ts):
            self._order.put_back(task)  # Dask did not take it
        return False

    def send_back(self, ts: TaskState, ws: WorkerState) -> bool:
        """Send a model that has left its worker to another one. Returns whether it is there."""
        pool = self._pool_of[ts.key]
        task = Handover(pool, ts, pool.durations.like(ts), worker=ws.address)
        task.workers, task.order = frozenset({ws.address}), (-math.inf, next(self._numbers))
        task.why = "a model goes on"
        self.control.send(task, task.why)
        if ts.processing_on is not ws:
            return False
        self.records.migrating.pop(ts.key, None)
        return True

    def leave_to_dask(self, tasks: Iterable[TaskState]) -> None:
        """Leave models that have left their worker to Dask, or to their pool."""
        some = list(tasks)
        for ts in some:
            self.records.migrating.pop(ts.key, None)
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
            self.records.record(pool, ts)
            self._wakes.look_at.add(ws.address)
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
            self._wakes.look_at.add(ts.processing_on.address)

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any], worker: str) -> None:
        control = self.control
        self._free_thread(pool, ts, self.charges.task_ended(pool, ts, startstops, worker))
        if self.records.inner:
            self.records.inner.pop(ts, None)
        if pool.holds:
            pool.holds.pop(ts, None)
        if ts in control.sent:
            control.restore(ts)
        if control.excused:
            control.blame(ts)

    def _free_thread(self, pool: Pool, ts: TaskState, seconds: float) -> None:
        """Free the thread of a task, and charge its `seconds` instead of the expected ones."""
        sent = pool.running.get(ts)
        if sent is not None:
            self.records.leave(sent)
            self.served = max(self.served, sent.tag)
        pool.charge(seconds - (sent.prepaid if sent is not None else 0.0), sent)
        pool.gaps.computed += seconds
        if not (pool.running or pool.ready):
            pool.gaps.left_at, pool.gaps.lacked = monotonic(), self.served - pool.service

    def _freed(self, worker: str | None) -> None:
        """Look at a worker where a task has ended; at all if None."""
        wakes = self._wakes
        if worker is None:
            wakes.look_at.update(self.scheduler.workers)
        else:
            slots = self.sent.by_worker.get(worker)
            starts = slots.thread_freed(monotonic()) if slots is not None and slots.queue else None
            if starts is not None:
                self._charge_in_advance(starts)
            if starts is None or not self.records.holding:
                wakes.look_at.add(worker)
            elif not self.rounds.opens(worker):
                return  # what was sent ahead has taken the thread
        if self._index.pools:
            wakes.soon()

    @staticmethod
    def _charge_in_advance(sent: Handover) -> None:
        """Charge a task in advance, if its compute time is known."""
        if sent.expected < math.inf and not sent.prepaid:
            sent.prepaid = sent.expected * sent.threads
            sent.pool.charge(sent.prepaid, sent)

    def look(self, workers: Collection[str]) -> None:
        """Look at workers where a task may be sent that could not be before."""
        self._wakes.look_at.update(workers)
        if workers:
            self._wakes.soon()

    def disown(self, pool: Pool, heir: Pool | None) -> None:
        """Give all tasks of a closed pool to another one, or to none."""
        tasks = list(pool.tasks) if heir is None else []
        for ts in tasks:
            self.control.restore(ts)
            self.control.blame(ts)
        self.records.disown(pool, heir)
        for ts in tasks:
            self.charges.forget(ts.key)

    def let_go(self, gang: PinnedGang) -> None:
        """Leave the members of a gang to Dask, since they cannot start together."""
        gang.closed = True
        self.control.release([ts for ts in gang.members if ts.processing_on is None], "gang let go")

    # Tasks that give up their thread, or are moved

    def seceded(self, key: Any) -> None:
        """Free the thread of a task that seceded, and charge its job for the time until now."""
        pool, ts = self._pool_of.get(key), self.scheduler.tasks.get(key)
        if pool is not None and ts is not None:
            self._free_thread(pool, ts, self.charges.seceded(pool, ts))
            self.records.lend(ts)
        self._freed(ts.processing_on.address if ts is not None and ts.processing_on else None)

    def gave_up_thread(self, ts: TaskState, *, idle: bool = False) -> None:
        """Free the thread of a task that waits in a report, `idle`, or that computes without it."""
        (self.control.excuse if idle else self.control.blame)(ts)
        pool, ws = self._pool_of.get(ts.key), ts.processing_on
        if pool is not None and ws is not None and self.control.rest(ts):
            self._free_thread(pool, ts, 0.0)
            self.records.lend(ts)
            self._freed(ws.address)

    def resumed(self, ts: TaskState) -> None:
        """Take a thread for a task that goes on after it waited in a report."""
        self.control.blame(ts)
        pool, ws = self._pool_of.get(ts.key), ts.processing_on
        if pool is not None and ws is not None and self.control.resume(ts):
            self.records.record(pool, ts)
            self.records.lend(ts)
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
        ts, pool = self.scheduler.tasks.get(key), self._pool_of.get(key)
        if ts is None or pool is None:
            return
        self.control.take_priority(ts)
        sent, after = pool.running.get(ts), ts.processing_on
        if sent is None or after is None or sent.worker == after.address:
            return
        before = sent.worker
        self.records.leave(sent)
        self.records.enter(pool, ts, sent)
        self._bind(pool, key, after, "by work stealing")
        self._wakes.look_at |= {before, after.address}
        self._wakes.soon()
