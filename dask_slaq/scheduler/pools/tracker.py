"""Tracking of tasks, as they move through the states of Dask, and are sent to workers."""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic, time
from typing import Any

from distributed.scheduler import TaskState, WorkerState

from dask_slaq.core.dispatch import ANY, OWED, Choice, Entry, Like, Sent, TaskKind, constants, undo
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGang
from dask_slaq.scheduler.pools.pool import Binding, Pool
from dask_slaq.scheduler.pools.records import TaskRecords
from dask_slaq.scheduler.pools.seam import Sending, bound_to, is_dasks, is_direct


class TaskTracker(TaskRecords):
    """Follows the transitions of all tasks and keeps the pools of their jobs up to date."""

    @property
    def lends(self) -> bool:
        """Whether jobs may use more threads than their cap while nobody else wants these."""
        return self._order.lend

    def take_ends(self) -> Iterable[tuple[Like, str, str, float]]:
        """Return the newest ends of tasks since the last call, for the speeds of workers."""
        ends, self._ends = self._ends, deque(maxlen=self._ends.maxlen)
        return ends

    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task waits in a pool until it is sent."""
        if ts.key in self.away:
            return True
        pool = self.pool_of.get(ts.key) if self.holding else None
        if pool is None:
            return False
        if self.gangs.of_task and self.gangs.is_open(ts):
            held, direct = True, is_direct(ts)
        elif not (direct := is_direct(ts)):
            held = True
        else:
            strict = not self._order.lend and pool.granted.most < math.inf
            held = (strict or pool.holds_all) and not is_dasks(ts)
        self._asked = ts.key, held, direct
        return held

    def is_queued(self, ts: TaskState) -> bool:
        """Return whether a ready task is to wait in the queue: it is held, and has a pool.

        If no worker could run it, Dask is to see that.
        """
        if not self.holding or ts.key not in self.pool_of or ts.key in self.away:
            return False
        if not self.is_held(ts):
            return False
        if ts.worker_restrictions or ts.resource_restrictions or ts.host_restrictions:
            return bool(self.scheduler.valid_workers(ts))
        return True

    def flow(
        self, ts: TaskState, plain: Callable[[TaskState], WorkerState | None]
    ) -> WorkerState | None:
        """Return the worker that `plain` chooses for a short task with inputs; None to hold it.

        A round trip would take as long. It is sent if it is expected to start soon, in its turn,
        and no job that comes before its own waits for a thread.
        """
        pool = self.pool_of.get(ts.key)
        if pool is None or pool.gang or pool.group is not None or not ts.dependencies:
            return None
        waits = ts.resource_restrictions or ts.key in self.away
        limited = self.limits.most and self.limits.label_of(ts)
        if waits or limited or self._asked != (ts.key, True, False):
            return None
        like, now = pool.durations.like(ts), monotonic()
        if constants.SHORT < like.usual < math.inf or (key := self._order.key(pool, now)) is None:
            return None
        if self._order.has_before(key, now):
            return None
        ws = plain(ts)
        if ws is None or self.sent.on(ws).free_in(now) > constants.SOON:
            return None
        order = (*key[:-1], next(self._count))
        expected = min(like.usual, constants.SHORT)  # while it is unknown, few are sent
        sent = Sent(pool, like, True, "short", order, pool.service, expected, like.soonest)
        sent.entitled = key.entitled or pool.granted.most < 1
        self._flowing[ts] = sent
        self.control.prepare(Sending(ts, ws, pool.granted.planned, order))
        return ws

    def came(self, ts: TaskState, rootish: bool) -> None:
        """File a task that has come to the queue; Dask itself would queue one that is `rootish`."""
        key, _, direct = self._asked
        direct = direct if key == ts.key else is_direct(ts)
        self._ready(self.pool_of[ts.key], ts, direct=direct, rootish=rootish)
        self.control.lay_aside(ts)

    def left(self, ts: TaskState) -> None:
        """Follow a task that leaves the queue, sent or not."""
        self.control.give_back(ts)
        if (pool := self.pool_of.get(ts.key)) is not None:
            self._not_ready(pool, ts)

    # Transitions

    def transition(self, key: Any, start: str, finish: str, kwargs: Mapping[str, Any]) -> None:
        """Follow one transition of any task; the last arguments are those of the plugin's hook."""
        pool = self.pool_of.get(key)
        if finish == "forgotten" and self.away:
            self.away.pop(key, None)
        if pool is None:
            if start == "processing":
                self._freed(kwargs.get("worker"))
            if finish == "processing" and self.holding:
                self._passed(self.scheduler.tasks[key])
            return
        ts = self.scheduler.tasks[key]
        asked, self._asked = self._asked, (None, False, False)
        if self._sending and finish != "processing":
            self._refused(ts)
        if start == "processing":
            self._ended(pool, ts, kwargs.get("startstops") or (), str(kwargs.get("worker")))
            self._freed(kwargs.get("worker"))
        elif start == "no-worker" and (ts in pool.ready or self._wanted):
            self._not_ready(pool, ts)  # not sent by us
        if finish == "processing":
            self._started(pool, ts)
        elif finish == "no-worker":
            if key not in self.away:
                if asked[0] != key:  # Dask has just asked about it, as nearly always
                    asked = key, self.is_held(ts), is_direct(ts)
                if asked[1]:
                    self._ready(pool, ts, direct=asked[2])
        elif finish == "waiting":
            pool.unfinished.add(ts)
            for each in self._wanted.get(ts, ()):
                for dep in ts.waiting_on or ():
                    self._want(each, dep)
        elif start != "memory" and finish != "queued":
            pool.unfinished.discard(ts)
            if self._submitter or self._wanted or self.gangs.of_task:
                self._is_done(ts)
        if finish == "forgotten":
            self._forget(ts)
            pool.drop(ts)

    def _ready(
        self, pool: Pool, ts: TaskState, *, direct: bool, rootish: bool | None = None
    ) -> None:
        """File a ready task in its pool, and in those that wait for it."""
        filed = not self.gangs.of_task or not self.gangs.is_open(ts)
        label = self.limits.label_of(ts) if self.limits.most else None
        if rootish is None:
            rootish = self._seam.is_rootish(ts)
        count = next(self._count)
        entry = pool.entry_of(ts, self.scheduler, rootish, count, label)
        if direct:
            entry = entry._replace(kind=self._kind_of_direct(ts, entry.kind))
        for each in (pool, *(self._wanted.get(ts, ()) if filed else ())):
            if not (each.ready or each.running):
                self._is_back(each)
            each.push(entry, filed=filed)
        self._wake_for(entry)

    def _kind_of_direct(self, ts: TaskState, kind: TaskKind) -> TaskKind:
        """Return the kind of a task that goes to its workers as soon as a limit lets it."""
        allowed: set[str] | None = bound_to(ts)
        if not allowed and (ts.host_restrictions or ts.loose_restrictions):
            valid = self.control.allowed(ts)
            allowed = None if valid is None else {ws.address for ws in valid}
        elif not allowed:
            return kind
        kind = kind._replace(allowed=None if allowed is None else frozenset(allowed))
        return ANY if kind == ANY else kind

    def _wake_for(self, entry: Entry) -> None:
        """Fill slots soon, as a task has become ready, if a worker is open for it."""
        filling = self.filling
        if not entry.homes:
            for pool in self._index.sent_by_dask:  # it may overtake what Dask has sent there
                filling.look_at.update(pool.sent_by_dask)
        elif filling.due or filling.filler.free:
            filling.look_at.update(entry.homes)
        elif not any(map(filling.opens, entry.homes)):
            return
        filling.soon()

    def _not_ready(self, pool: Pool, ts: TaskState) -> None:
        for each in (pool, *self._wanted.get(ts, ())):
            each.pop(ts)

    def _is_back(self, pool: Pool) -> None:
        """Record that a pool has tasks again, and limit the service that it is owed.

        It keeps what it lacked when it left, less its share of the time since, but is not owed what
        it left to others.
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

    def send(self, choice: Choice) -> bool:
        """Send a task to the worker that was chosen for it. Returns whether it is there."""
        pool, ts, sent = choice.pool, choice.entry.ts, choice.sent
        assert isinstance(pool, Pool)
        submitter = self.pool_of[ts.key]
        if submitter is not pool:  # the job that waits for it pays for it
            self._part(ts, pool)
            pool.adopt(ts)
            sent.why = f"{sent.why}; submitted by {submitter.name}"
        if (gang := self.gangs.of_task.get(ts)) is not None:
            gang.closed = True
        sent.order = (*choice.key[:-1], next(self._count))
        self._sending[ts] = choice
        ws = self.scheduler.workers[choice.address]
        bound = choice.entry.kind.allowed is not None
        sending = Sending(ts, ws, pool.granted.planned, sent.order, bound)
        self.control.send(sending, f"{pool.name}: {sent.why}")
        self._refused(ts)
        return ts.processing_on is not None

    def _refused(self, ts: TaskState) -> None:
        """Undo the choice that Dask did not take, if it has not."""
        choice = self._sending.pop(ts, None)
        if choice is not None:
            waits = ts.state in self.control.WAITING and self.is_held(ts)
            undo(self._order, choice, listed=waits and ts not in choice.pool.ready)

    def send_back(self, ts: TaskState, ws: WorkerState) -> bool:
        """Send a model that has left its worker to another one. Returns whether it is there."""
        order = (-math.inf, next(self._count))
        self.control.send(Sending(ts, ws, frozenset({ws.address}), order), "a model goes on")
        if ts.processing_on is not ws:
            return False
        self.away.pop(ts.key, None)
        return True

    def leave_to_dask(self, tasks: Iterable[TaskState]) -> None:
        """Leave models that have left their worker to Dask, or to their pool."""
        some = list(tasks)
        for ts in some:
            self.away.pop(ts.key, None)
        self.control.release(some, "a model goes on")

    def _started(self, pool: Pool, ts: TaskState) -> None:
        ws = ts.processing_on
        assert ws is not None, f"{ts} is processing on no worker"
        choice, flowing = self._sending.pop(ts, None), self._flowing.pop(ts, None)
        if flowing is not None:
            self.control.take_priority(ts)
            if not (pool.ready or pool.running):
                self._is_back(pool)
            self._charge_ahead(flowing)
            self._enter(pool, ts, flowing)
            self.filling.look_at.add(ws.address)
            self._bind(pool, ts.key, ws, flowing.why)
        elif choice is None:
            self._record(pool, ts)
            self.filling.look_at.add(ws.address)
            self._bind(pool, ts.key, ws, "sent by Dask", "passed")
        else:
            self.sent.put(ts, ws, choice.sent)
            owed = "floor" if choice.key.standing == OWED else ""
            self._bind(pool, ts.key, ws, choice.sent.why, owed)

    def _bind(self, pool: Pool, key: Any, ws: WorkerState, why: str, reason: str = "") -> None:
        reason = reason or ("granted" if ws.address in pool.granted.workers else "lent")
        self._bound(Binding(time(), key, pool.name, ws.address, reason, why))

    def _passed(self, ts: TaskState) -> None:
        """Look at the worker to which Dask has sent a task."""
        if ts.processing_on is not None:
            self.filling.look_at.add(ts.processing_on.address)

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any], worker: str) -> None:
        (left, charged), seconds = self.seceded_at.pop(ts.key, (math.inf, 0.0)), 0.0
        computed = None
        for run in startstops:
            # A key that is computed again on the same worker brings its earlier runs along.
            if run["action"] == "compute":
                computed = run
        waited = self.waited.pop(ts.key, 0.0)
        if computed is not None:
            self.learned.ended(ts, computed["stop"] - computed["start"], waited)
        sent = pool.running.get(ts)
        at_once = len(pool.ready) + len(pool.running) + pool.waiting
        if ts.key in self.charged_until:
            since = self.charged_until.pop(ts.key)
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
        self._left(pool, ts, seconds - charged)
        for some in (self._inner, pool.holds):
            some.pop(ts, None)
        if sent is not None and sent.expected == math.inf:
            seconds -= sent.ahead  # a member of a gang was charged while it ran
        self.charge(pool.name, seconds, at_once)
        pool.ended, pool.used = pool.ended + (computed is not None), pool.used + seconds
        if ts in self.control.priorities:
            self.control.restore(ts)
        if self.control.excused:
            self.control.blame(ts)

    def _left(self, pool: Pool, ts: TaskState, seconds: float) -> None:
        """Free the thread of a task, and charge `seconds` instead of what was expected."""
        sent = self._leave(ts)
        pool.charge(seconds - (sent.ahead if sent is not None else 0.0), sent)
        pool.gaps.computed += seconds
        if sent is not None:
            self.served = max(self.served, sent.tag)
        if not (pool.running or pool.ready):
            pool.gaps.left_at, pool.gaps.lacked = monotonic(), self.served - pool.service

    def _freed(self, worker: str | None) -> None:
        """Look at a worker where a task has ended; at all if None."""
        if worker is None:
            self.filling.look_at.update(self.scheduler.workers)
        else:
            starts = self.sent.thread_freed(worker)
            if starts is not None:
                self._charge_ahead(starts)
                if self.holding and not self.filling.opens(worker):
                    return  # what was sent ahead has taken the thread
            self.filling.look_at.add(worker)
        if self._index.pools:
            self.filling.soon()

    def look(self, workers: Collection[str]) -> None:
        """Look at workers where a task may be sent that could not be before."""
        self.filling.look_at.update(workers)
        if workers and self._index.pools:
            self.filling.soon()

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
            if pool is not None and sent is not None and sent.start is not None:
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
        if ts.key in self.pool_of and ts in self.gangs.of_task:
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
            self._left(pool, ts, used)
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
            self._left(pool, ts, 0.0)
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
        self._leave(ts)
        self._enter(pool, ts, sent)
        self._bind(pool, key, after, "by work stealing")
        self.filling.look_at |= {before, after.address}
        self.filling.soon()
