"""Choices: which trials train on every worker, and where those go on that have left theirs.

Workers follow the last `Turns` that they were sent, by themselves. They are sent some at least
every `BEAT_SECONDS`, and let all trials train when they hear nothing for longer. So whatever fails
here, nothing stays waiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from time import monotonic
from typing import Any

from distributed.scheduler import TaskState
from tornado.ioloop import PeriodicCallback

from dask_slaq.core.dispatch import TaskConstraints
from dask_slaq.core.settings import MOST_ITERATIONS
from dask_slaq.core.trials import Destinations, Trials, TrialState, WorkerQuota, choose_everywhere
from dask_slaq.scheduler.event_loop import Throttle
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.pools import Pool
from dask_slaq.scheduler.trials.agents import TrialAgents
from dask_slaq.scheduler.trials.quotas import Quotas
from dask_slaq.scheduler.trials.running import RunningSearch
from dask_slaq.scheduler.trials.states import States

logger = logging.getLogger(__name__)

#: Seconds between two messages to a worker on which trials wait.
BEAT_SECONDS = 0.5


class Choices:
    """Choices for the searches in `running`, and what is known of workers for them.

    `enter` calls what the event loop has to do, and `give_up` is called unless it `is_active` then.
    """

    def __init__(
        self,
        jobs: ScheduledJobs,
        running: Mapping[str, RunningSearch],
        enter: Callable[..., Any],
        is_active: Callable[[], bool],
        give_up: Callable[[], None],
    ) -> None:
        scheduler, pools, tracker = jobs.scheduler, jobs.pools.pools, jobs.pools.tracker
        self._scheduler, self._pools, self._tracker = scheduler, pools, tracker
        self._engine, self._stopping, self._stop = jobs.engine, jobs.stopping, jobs.stop
        self._running, self._enter, self._is_active = running, enter, is_active
        self._give_up = give_up
        self.agents = TrialAgents(scheduler)
        self.quotas = Quotas(scheduler, pools, tracker, running)
        self.states = States(scheduler, tracker.control)
        self._tell_once = jobs.goals.tell_once
        self.draining: Collection[str] = ()  # workers that are to be closed: models leave them
        self._to_send: list[tuple[RunningSearch, Any, str]] = []  # models that go on, and where
        self._decided = 0.0
        decide_soon = partial(enter, self._choose_if_active)
        self.beat = PeriodicCallback(decide_soon, BEAT_SECONDS * 1000)
        # The pauses may be behind: models are compared first when many have just begun.
        self._soon = Throttle(decide_soon, 32.0, least=0.005, burst=4.0, delay=0.005)
        self.ask = self._soon.ask

    def look(self) -> None:
        """Choose again soon: a worker has changed."""
        if self._running:
            self.ask()

    def defer(self, call: Callable[..., object], *args: Any) -> None:
        """Call something soon, and not at once: this may be called inside a transition."""
        asyncio.get_running_loop().call_soon(self._enter, call, *args)

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left. If its memory was the reason, none waits on those like it."""
        self.agents.forget_worker(worker)
        if self.quotas.forget_worker(worker):
            self.ask()

    def _choose_if_active(self) -> None:
        if self._is_active():
            self.choose_now()
        elif self._running:
            self._give_up()

    def choose_now(self) -> None:
        """Choose the trials that train on every worker, and tell the workers."""
        with self._soon.work():
            self.agents.tell(self._choose())

    def _choose(self) -> dict[str, list[dict[str, Any]]]:
        """Return the turns of the trials on every worker where some are alive."""
        now = monotonic()
        pools = self._pools.values()
        wanting = {pool.name for pool in pools if self._could_use_a_thread(pool)}
        wanting |= {
            name for name, s in self._running.items() if s.trials.waiting and not s.pool.paused
        }
        for name, search in self._running.items():
            self._tell_stalled(name, search.trials, now, now - self._decided)
            self._bound(name, search)
        quotas_of = self.quotas.divide(wanting, self.draining, now - self._decided)
        turns: dict[str, list[dict[str, Any]]] = {}
        for name, search in self._running.items():
            for worker, turn in self._turns_of(search, quotas_of[name]):
                turns.setdefault(worker, []).append(turn)
        self._decided = now
        return turns

    def _tell_stalled(self, name: str, trials: Trials, now: float, since: float) -> None:
        """Tell of models that have stalled; the last choice was `since` seconds ago."""
        if since > 6 * BEAT_SECONDS:  # blocked: what they have sent meanwhile was not read yet
            for trial in trials.alive.values():
                trial.heard += since
        for trial in trials.find_stalled(now):
            seconds, pace = now - trial.heard, trial.times.computed / max(trial.reports, 1)
            message = (
                f"model {trial.key} has made no report for {seconds:.0f} s on {trial.worker}, "
                f"where one took {pace:.3g} s: its thread is no longer counted on"
            )
            if trials.staying:
                message += "; it may need a lock that a model holds which waits in its report"
            logger.warning("search %s: %s", name, message)
            self._tell_once(name, "silent", message)

    def _could_use_a_thread(self, pool: Pool) -> bool:
        """Return whether a ready task of a job may begin: models that wait may hold a resource."""
        if not pool.ready or pool.paused:
            return False
        if not any(kind.resources for kind in pool.filed):
            return True
        running = self._scheduler.running
        return any(kind.suits(ws) for kind in pool.filed for ws in running)

    def _turns_of(
        self, search: RunningSearch, quotas: dict[str, WorkerQuota]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Choose the trials of a search that train, and those that move. Yield turns by worker."""
        free = self._free(search)
        unstarted = 0 if search.pool.paused else self.unstarted(search)
        for job, trial in search.jobs.items():
            if not trial.verdict and search.trials.gives_up(trial):
                trial.verdict = "pruned"
                self._stop(job)
        freed, destinations = self.is_freed(search), None
        if self._tracker.records.models_move and not freed:
            destinations = Destinations(
                self.states.at, search.speed.bandwidth, self._allowed(search)
            )
        choice, moving = choose_everywhere(search.trials, quotas, unstarted, destinations)
        if freed:
            self.release(search)
        elif destinations is not None:
            self._to_send += [(search, key, worker) for key, worker in moving]
            self.defer(self._send_models)
        self._tracker.look(search.promised.give_turns(choice))
        for worker, chosen in choice.items():
            if not (self._engine.traits.holds_tasks or search.pool.paused):
                chosen.width, chosen.explored = len(chosen.order), 0
            turn = {
                "run": search.run,
                "runs": search.runs,
                "order": chosen.order,
                "width": chosen.width,
                "explore": search.trials.first_turn,
                "explored": chosen.explored,
                "prune": chosen.pruned,
                "free": free,
                "steps": search.trials.settings.steps,
                "stop": search.pool.name in self._stopping,
                "leave": chosen.leave,
                "leaves": quotas[worker].leaves,
                "apart": quotas[worker].blocked > 0,
                "peer": self.agents.peer_of(worker),
            }
            yield worker, turn

    def _free(self, search: RunningSearch) -> list[Any]:
        """Mark trials of which others want the result, and return their keys.

        They neither wait nor are given up: under plain Dask, others would have the result. A search
        that is stopped tells it of all tasks, as the next one may begin at any time.
        """
        alive = search.trials.alive
        keys: list[Any] = list(alive)
        if search.pool.name in self._stopping:
            unfinished = [ts.key for ts in search.pool.unfinished]
            keys += [key for key in {*unfinished, *search.begun} if key not in alive]
        tasks, client = self._scheduler.tasks, search.pool.client
        shared = []
        for key in keys:
            is_shared = self._is_wanted_by_others(tasks.get(key), client)
            if is_shared:
                shared.append(key)
            if key in alive:
                alive[key].shared = is_shared
        return shared

    def _is_wanted_by_others(self, ts: TaskState | None, client: str) -> bool:
        """Return whether somebody else than a client waits for a task, or for what needs it."""
        if ts is None:
            return False
        for cs in ts.who_wants or ():
            if cs.client_key != client and cs.client_key in self._scheduler.client_comms:
                return True
        owner = self._tracker.records.pool_of.get(ts.key)
        if owner is not None and owner.client != client:
            return True
        return any(pool.client != client for pool in self._tracker.records.waiting_for(ts))

    def _allowed(self, search: RunningSearch) -> dict[Any, list[str]]:
        """Return the workers where models of a search may run that may not run everywhere."""
        tasks: Mapping[Any, TaskState] = self._scheduler.tasks
        allowed = {}
        for key in search.trials.alive:
            ts = tasks.get(key)
            if ts is None:
                continue
            if ts.worker_restrictions or ts.host_restrictions or ts.resource_restrictions:
                workers = self._tracker.control.allowed(ts)
                workers = self._scheduler.running if workers is None else workers
                needs = TaskConstraints(None, tuple((ts.resource_restrictions or {}).items()))
                group = search.pool.group
                if group is not None and not group.supplies(needs.resources or ()):
                    workers = set()
                allowed[key] = [ws.address for ws in workers if needs.suits(ws)]
        return allowed

    def _send_models(self) -> None:
        """Send models that have left their worker to the workers where they go on."""
        models, self._to_send = self._to_send, []
        for search, key, worker in models:
            ts, ws = self._tracker.records.migrating.get(key), self._scheduler.workers.get(worker)
            trial = search.trials.alive.get(key)
            if ts is None or ws is None or ts.state != "no-worker" or trial is None:
                continue
            if ws not in self._scheduler.running:  # it was paused meanwhile
                continue
            group, needs = search.pool.group, ts.resource_restrictions or {}
            if group is not None and not (group.may_start() and group.supplies(needs.items())):
                continue  # until the one whose thread it takes has reported
            if self._tracker.send_back(ts, ws):
                trial.become(TrialState.SENT)
                trial.worker = worker
                search.pool.waiting = search.trials.waiting
        if self._scheduler.queued and self._is_active():
            self._tracker.control.fill()

    def _bound(self, name: str, search: RunningSearch) -> None:
        """Set the number of steps that a search will make, if its trials have a bound."""
        steps = search.trials.settings.steps
        models = len(search.pool.tasks) - len(search.pool.inner)
        seen = steps, models, len(search.trials.ended_of)
        if not steps or seen == search.seen:
            return
        search.seen = seen
        # Models that were pruned or have failed make no further steps.
        left = {t.key: steps - t.step for t in search.trials.ended if t.outcome != "done"}
        bound = steps * models - sum(max(n, 0) for n in left.values())
        if bound > 0 and bound != search.bound:
            search.bound = bound
            self._engine.set_max_iter(name, min(bound, MOST_ITERATIONS))

    def unstarted(self, search: RunningSearch) -> int:
        """Return the number of ready tasks of a search that are on no worker."""
        if self._tracker.records.holding:
            return len(search.pool.ready.keys() - search.pool.inner)
        tasks = search.pool.tasks - search.pool.inner
        return sum(ts in tasks for ts in self._scheduler.queued)

    def is_freed(self, search: RunningSearch) -> bool:
        """Return whether a search is left to Dask: by the policy, or as it is stopped."""
        plain = not (self._engine.traits.holds_tasks or search.pool.paused)
        return plain or search.pool.name in self._stopping

    def release(self, search: RunningSearch) -> None:
        """Leave models that have left their worker to Dask, soon: this may be in a transition."""
        models = [ts for ts in self._tracker.records.migrating.values() if ts in search.pool.tasks]
        if models:
            self.defer(self._tracker.leave_to_dask, models)
