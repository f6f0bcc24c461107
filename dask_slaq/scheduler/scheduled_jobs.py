"""Jobs of one scheduler: keeps the engine and the pools in step.

`SlaqPlugin` passes on requests, reports and tasks, and calls for decisions.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from distributed.comm.addressing import get_address_host

from dask_slaq.core.budgets import Budgets
from dask_slaq.core.dispatch import Group
from dask_slaq.core.errors import NonFiniteLoss, UnknownJob
from dask_slaq.core.job_history import Epochs
from dask_slaq.core.job_settings import JOB_SETTINGS, OF_ENGINE, check_job_settings, given_settings
from dask_slaq.core.memory import kind_of_name
from dask_slaq.core.owner_terms import OwnerTerms
from dask_slaq.core.settings import BLOCKED, STOP, shown
from dask_slaq.core.usage import DAY
from dask_slaq.memory import Memory
from dask_slaq.scheduler.accounts import Accounts, UnownedUsage
from dask_slaq.scheduler.admission import Admission
from dask_slaq.scheduler.goals import Goals
from dask_slaq.scheduler.job_values import SILENT, Pace, etas, stage_of, values_of_jobs
from dask_slaq.scheduler.pools import Pool, find_blocked
from dask_slaq.scheduler.reserved import KeptReservations

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.comm.core import Comm

    from dask_slaq.config import Settings
    from dask_slaq.core.budgets import Budgets, Spending
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.scheduler.accounts import UsageByOwner
    from dask_slaq.scheduler.pools import Blocked, Pools

__all__ = ["ScheduledJobs"]

#: Jobs that ended and are remembered, and clients of which those that left are still known.
MOST_ENDED, MOST_CLIENTS = 10_000, 1000
#: Seconds for which jobs that ended on an earlier scheduler are shown.
KEPT = 3600.0
#: Settings of a job that `Goals` follow.
GOAL = ("target", "target_kind", "by", "stop")


@lru_cache(1000)  # called for each task outside of jobs
def _unknown_at(address: str) -> str:
    return f"unknown@{get_address_host(address)}"


def _above(spending: Spending) -> str:
    """Return what happens above a budget."""
    on_spare = "its jobs run on what nobody else wants"
    return f"new jobs wait, and {on_spare}" if spending.waits else on_spare


class ScheduledJobs:
    """All jobs on a scheduler, and one pool per client for its unowned tasks.

    In all methods, `job` or `name` is the name of a job, `client` the identifier of its client, and
    `run` the identifier of its block, which differs for every job of the same name. A job belongs
    to the connection of its client, `comm`, with which it ends. `changed` is called when a job
    arrives or ends, `alert` with alerts, and `name_of` returns whom the certificate of a client
    names, None if that does not count.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: Engine | Recorder,
        pools: Pools,
        settings: Settings,
        changed: Callable[[], None],
        memory: Memory,
        name_of: Callable[[str], str | None],
        alert: Callable[[dict[str, Any]], object],
    ) -> None:
        self.scheduler, self.engine, self.pools = scheduler, engine, pools
        self.reports: dict[str, int] = {}  # numbers of reports of the running jobs
        self._runs: dict[str, str] = {}
        self._comms: dict[str, Comm | None] = {}
        self.owner: dict[str, str] = {}
        self._owner_of_client: dict[str, str] = {}
        self.stopping: set[str] = set()  # they were asked to stop
        self.entered: dict[str, float] = {}  # when the block was entered, Unix seconds
        self.paused: set[str] = set()
        # They wait until another job of their owner ends, or for its budget.
        self.queued: set[str] = set()
        self._within: dict[str, str] = {}  # job around a nested one
        self._admission: Admission | None = None
        self.pace: dict[str, Pace] = {}
        # Alerts of the last jobs that ended, with ``core_seconds`` and ``ended``, Unix seconds.
        self.ended: deque[dict[str, Any]] = deque(maxlen=MOST_ENDED)
        self.goals = Goals(
            engine,
            self.reports,
            eta=lambda name: etas(engine, self.pace, [name]).get(name),
            stop=self.stop,
            cap=self._cap,
            tell=self._tell,
        )
        self.resources: dict[str, dict[str, float]] = {}  # that each task of a job needs
        self.worth: dict[str, float] = {}  # of an hour of a job's time, where it was told
        self.epochs = Epochs(settings.history)
        self.unowned = UnownedUsage(settings.history)
        self._settings, self._changed, self.memory = settings, changed, memory
        pools.tracker.charge = self.charge
        self._name_of, self._alert = name_of, alert
        counted = scheduler, pools.tracker, self._payer_of, self.owner_of, settings.half_life
        if memory.store is None:
            self.accounts = Accounts(*counted, self.check_budgets)
        else:
            from dask_slaq.scheduler.filed_accounts import FiledAccounts  # and SQLite

            self.accounts = FiledAccounts(memory.store, *counted, self.check_budgets)
        self.reservations = KeptReservations(memory.store, lambda: scheduler.total_nthreads)
        self._budgets = Budgets(self.accounts.spent)
        self._read = self.accounts.loaded  # whether usage was read from the file at the last check
        self.check_budgets()
        memory.lately(time() - KEPT, self._put_back)

    def _put_back(self, ended: list[dict[str, Any]]) -> None:
        """Add jobs that ended on earlier schedulers."""
        known = {(each["job"], each["ended"]) for each in self.ended}
        told = ("job", "owner", "event", "message", "ended")
        whole = [each for each in ended if all(key in each for key in told)]
        self.ended.extendleft(
            each for each in reversed(whole) if (each["job"], each["ended"]) not in known
        )

    @property
    def usage(self) -> UsageByOwner:
        """Usage by owner."""
        return self.accounts.totals

    # Coming and going

    def open(
        self,
        name: str,
        client: str,
        *,
        comm: Comm | None = None,
        run: str | None = None,
        within: str | None = None,
        search: str = "",
        **settings: Any,
    ) -> None:
        """Add a job with `settings` as of `check_opening`; it may be a model of a `search`."""
        settings = {**check_job_settings({}), **settings}
        owner, weight = settings["owner"], settings["weight"]
        given = given_settings(settings, OF_ENGINE)
        if settings["target_kind"] == "reduction":
            given["target"] = None  # a loss as soon as the range can be predicted
        if given["latest"] is None:
            given["latest"] = self._latest_of(owner)
        kind = settings["kind"] or kind_of_name(name)
        self.engine.add_job(name, monotonic(), owner=owner, kind=kind, search=search, **given)
        self.goals.begin(name, **given_settings(settings, GOAL))
        self.owner[name] = owner
        self._know(client, owner)
        self.epochs.begin(name, time())
        self.resources[name] = settings["resources"]
        if settings["worth_per_hour"] is not None:
            self.worth[name] = settings["worth_per_hour"]
        if within in self.reports:  # so no circle of blocks is made up
            self._within[name] = within
        self.reports[name] = 0
        self._runs[name], self._comms[name] = run or uuid.uuid4().hex, comm
        group = self._group_of(owner)
        pool = self.pools.add(
            name, client, weight=weight, gang=settings["gang"], owner=owner, group=group
        )
        pool.run = self._runs[name]
        # From the start, and not only once it was granted something.
        pool.most = given["max_share"] or math.inf
        pool.floor = bool(given["min_share"])
        if self.engine.owners is not None:
            self.queued.add(name)
            self.admit()
        self._hold_back(name)

    def hand_over(self, name: str, client: str, comm: Comm | None, run: str | None) -> None:
        """Make a running job that of another client, in its block `run`."""
        pool = self.pools.pools[name]
        self._know(client, self.owner[name])
        self._runs[name], self._comms[name] = run or uuid.uuid4().hex, comm
        pool.client, pool.run = client, self._runs[name]
        self.entered.pop(name, None)

    def admit(self) -> None:
        """Let waiting jobs begin, oldest first, as far as their owners may have more at once."""
        full: set[str] = set()  # owners that may have no other one, so that each is counted once
        for name in [name for name in self.reports if name in self.queued]:
            if not self.admission.must_wait(name, full):
                self.queued.discard(name)
                self._hold_back(name)

    @property
    def admission(self) -> Admission:
        """Which jobs wait for others of their owner; made for the first owner with terms."""
        if self._admission is None:
            owners = self.engine.owners
            assert owners is not None, "jobs wait for nobody"
            some = self.reports, self.owner, self._within, self.queued, self.stopping
            searches = self.engine.jobs.search
            self._admission = Admission(owners, *some, searches, self.waits_for_budget)
        return self._admission

    def terms_of(self, owner: str) -> OwnerTerms:
        """Return the terms of an owner or team."""
        if self.engine.owners is not None:
            return self.engine.owners.of(owner)
        return OwnerTerms()

    def line(self, owner: str) -> tuple[str, ...]:
        """Return an owner and the teams that it is in, nearest first; see `Owners.line`."""
        return (owner,) if self.engine.owners is None else self.engine.owners.line(owner)

    # Budgets

    def check_budgets(self) -> None:
        """Alert of budgets that are almost or wholly used, and let jobs begin or wait for them."""
        owners = self.engine.owners if self.accounts.broken is None else None
        before, self._read = (self._over(), self._read), self.accounts.loaded
        for spending in self._budgets.update(owners, int(time() // DAY)):
            self._alert(
                {
                    "event": "budget",
                    "job": "",
                    "owner": spending.account,
                    "message": spending.in_words() + (": " + _above(spending)) * spending.is_over,
                }
            )
        if (self._over(), self._read) != before:
            self.admit()
            self._changed()

    def _over(self) -> set[tuple[str, str]]:
        """Return the accounts of budgets that are used up, and what happens then."""
        return {(each.account, each.terms.over) for each in self.spendings() if each.is_over}

    def spendings(self) -> list[Spending]:
        """Return what was used of all budgets, the most used one first."""
        return self._budgets.all()

    def spending_of(self, owner: str) -> Spending | None:
        """Return what was used of the budget that limits an owner or team most; None without any.

        It is as of the last check.
        """
        return self._budgets.of(owner)

    def waits_for_budget(self, owner: str) -> bool:
        """Return whether new jobs of an owner wait, because nothing of its budget is left.

        Until usage is read from the file, all wait that have a budget.
        """
        if self.accounts.broken is not None:
            return False
        if not self.accounts.loaded:
            return self.engine.owners is not None and self.terms_of(owner).has_budget
        spending = self.spending_of(owner)
        return spending is not None and spending.waits

    def _group_of(self, owner: str) -> Group | None:
        """Return the group of an owner until the next decision; None without owners."""
        if self.engine.owners is None:
            return None
        found: Group | None = None
        for name in reversed(self.line(owner)):
            terms, group = self.terms_of(name), self.pools.groups.get(name)
            found = group or Group(
                terms.max_threads,
                spare=self.is_spare(owner),
                resources=terms.max_resources or {},
                name=name,
                team=found,
            )
        return found

    def is_spare(self, owner: str) -> bool:
        """Return whether an owner runs on what nobody else wants."""
        spending = self.spending_of(owner)
        return spending is not None and spending.is_over

    def _hold_back(self, name: str) -> None:
        """Hold the tasks of a job that is paused or waits for its owner, or no longer."""
        pool, held = self.pools.pools[name], name in self.paused or name in self.queued
        if pool.paused != held:
            pool.paused = held
            pool.touch()
            self.engine.pause(name, held)
            self._changed()

    def runs(self, name: object, run: object = None) -> bool:
        """Return whether a job runs; with `run`, whether that block of the job still runs."""
        if not isinstance(name, str) or name not in self.reports:
            return False
        return run is None or run == self._runs[name]

    def unknown(self, name: object) -> UnknownJob:
        """Return the error for a job that does not run, which names those that do."""
        running = ", ".join(map(repr, sorted(self.reports)[:20])) or "none"
        return UnknownJob(f"no job named {shown(name)} is running; running are: {running}")

    def is_of(self, name: str, comm: object) -> bool:
        """Return whether a running job belongs to the client of a connection."""
        return comm is not None and self._comms[name] is comm

    def submits(self, name: str, comm: object) -> bool:
        """Return whether a connection may submit tasks of a running job, which it may be without.

        Not if another one opened the job, whatever the names of their clients are.
        """
        return name in self.reports and self._comms[name] in (None, comm)

    def owned(self, name: Any, comm: object, run: object = None) -> str:
        """Return the identifier of the job's block, if the job is of the client of a connection.

        Workers belong to nobody: for them, `comm` is None. Otherwise `UnknownJob` is raised.
        """
        if not self.runs(name):
            raise UnknownJob(f"no job named {shown(name)} is running")
        if comm is not None and not self.is_of(name, comm):
            raise UnknownJob(f"the running job {shown(name)} is another client's")
        if not self.runs(name, run):
            raise UnknownJob(f"that job {shown(name)} has ended; another of its name is running")
        return self._runs[name]

    def stage_times(self, name: str) -> dict[str, tuple[float, int]]:
        """Return core-seconds and numbers of blocks of the stages of a job; empty without any."""
        pool = self.pools.pools.get(name)
        return {} if pool is None or pool.stages is None else pool.stages.times()

    def forget(self, name: str, outcome: str | None = None) -> None:
        """Forget a job, and remember its run if it has an outcome.

        While other jobs run, its unfinished tasks join the unowned tasks of its client. Otherwise
        they are left to plain Dask, as they are once nobody follows tasks any more: records of
        tasks that have ended since must not be handed on.
        """
        pool = self.pools.pools.get(name)
        inherits = pool is not None and pool.reports and pool.unfinished and len(self.reports) > 1
        follows = self.pools.follows_tasks
        heir = self.pool_of_unowned(pool.client) if pool and inherits and follows else None
        self._forget(name, heir, outcome)

    def _forget(self, name: str, heir: Pool | None, outcome: str | None = None) -> None:
        try:
            self.pools.remove(name, heir)
        finally:  # whatever fails, a job of this name may begin again
            self.pools.pools.pop(name, None)
            self.drop(name, outcome)

    def drop(self, name: str, outcome: str | None) -> None:
        """Forget a job that has no pool any more; nothing if it is forgotten."""
        if name not in self._runs and name not in self.engine.jobs:
            return
        self.resources.pop(name, None)
        self.worth.pop(name, None)
        self.reports.pop(name, None)
        self._runs.pop(name, None)
        self.entered.pop(name, None)
        self._comms.pop(name, None)
        for some in (self.stopping, self.paused, self.queued):
            some.discard(name)
        outer = self._within.pop(name, None)
        for inner in [inner for inner, around in self._within.items() if around == name]:
            if outer is None:
                del self._within[inner]
            else:
                self._within[inner] = outer
        self.pace.pop(name, None)
        try:
            if name in self.engine.jobs and self.engine.jobs[name].reports:
                self._sum_up(name, outcome or "lost")
        finally:
            self.accounts.pool_closes(name)
            if name in self.engine.jobs:
                self.engine.remove_job(name, monotonic(), outcome or "failed", ended=time())
            self.owner.pop(name, None)
        self.admit()

    def _sum_up(self, name: str, outcome: str) -> None:
        """Remember how a job has ended, and count what it has reached."""
        used = self.engine.jobs[name].runtime.attained
        if (alert := self.goals.end(name, outcome)) is not None:
            self.ended.append({**alert, "core_seconds": used, "ended": time()})
            self.memory.keep_ended(self.ended[-1])
        grant = self.engine.grants.get(name)
        reduction = 1.0 - grant.normalized if grant else 0.0
        self.accounts.job_ended(name, outcome, reduction)

    def forget_all(self) -> None:
        """Forget every job and all unowned tasks."""
        self.queued.clear()
        for name in list(self.pools.pools):
            self._forget(name, None)

    # What they do

    def report(self, job: str, loss: Any, step: Any = None, *, anew: bool = False) -> None:
        """Record the `loss` of one iteration, the next one unless it is the iteration `step`.

        `anew` if the training begins again with it. Raises `NonFiniteLoss`.
        """
        self.reports[job] += 1
        if (stages := self.pools.pools[job].stages) is not None:
            stages.current.reports = True
        if isinstance(loss, bool) or not isinstance(loss, int | float):
            raise NonFiniteLoss(f"a loss must be a number, not {shown(loss)}")
        if anew:
            self.memory.begin_anew(job)
            self.goals.begin_again(job)
        now = monotonic()
        known = isinstance(step, int) and self.engine.jobs[job].iteration < step <= 10**12
        self.engine.report(job, loss, now, step if known else None)
        if (pace := self.pace.get(job)) is None:
            pace = self.pace[job] = Pace(now)
        pace.step(now)

    def charge(self, name: str, seconds: float, at_once: float) -> None:
        """Charge a job and its owner for a finished task. See `Engine.observe_task`."""
        self.engine.observe_task(name, seconds, at_once)
        self.accounts.of_pools[name] += seconds
        if name not in self.reports:
            self.unowned.ended += seconds

    def pause(self, name: str, paused: bool) -> None:
        """Resume a job, or if `paused` let its running tasks end and no other start."""
        (self.paused.add if paused else self.paused.discard)(name)
        self._hold_back(name)

    def stop(self, name: str) -> None:
        """Ask the client of a job to end its training loop at the next report."""
        self.stopping.add(name)
        self.tell_client(name, STOP)
        self.pause(name, False)  # otherwise it might never report again
        self.admit()

    def tell_client(self, name: str, what: str, **more: Any) -> None:
        """Tell the block of a job to `STOP`, or what is wrong with its tasks: `OUTSIDE` and others.

        It is said on the stream of its client, which nobody else hears or writes.
        """
        stream = self.scheduler.client_comms.get(self.pools.pools[name].client)
        if stream is not None and self.is_of(name, stream.comm) and not stream.closed():  # type: ignore[no-untyped-call]
            stream.send({"op": what, "run": self._runs[name], **more})

    def _cap(self, name: str, most: float | None) -> None:
        self.engine.set_job(name, max_share=most)
        self.pools.pools[name].most = most or math.inf
        self.pools.pools[name].touch()

    def _tell(self, name: str, event: dict[str, Any]) -> None:
        event["owner"] = self.owner.get(name, "")
        self._alert(event)

    def expect(self, job: str, iterations: Any) -> None:
        """Record the maximum number of `iterations` to come of a running job; None if unknown.

        Raises `InvalidSetting` if that is not a number of iterations.
        """
        JOB_SETTINGS["max_iter"].check(iterations)
        more = None if iterations is None else self.reports[job] + iterations
        self.engine.set_max_iter(job, more)

    def worth_of(self, name: str) -> float:
        """Return what an hour of a job's time is worth; nan for what its workers cost."""
        if name in self.worth or self.engine.owners is None:
            return self.worth.get(name, math.nan)
        return self.engine.owners.worth_of(self.owner[name])

    @property
    def other_weight(self) -> float:
        """Weight of tasks outside of jobs."""
        return self._settings.other_weight

    def _latest_of(self, owner: str) -> float | None:
        return None if self.engine.owners is None else self.engine.owners.latest_of(owner)

    def introduce(self, client: str, owner: str) -> None:
        """Record the owner of a client that has opened no job."""
        if client not in self._owner_of_client:
            self._know(client, owner)

    def _know(self, client: str, owner: str) -> None:
        if self._owner_of_client.get(client) != owner:
            self.accounts.settle()  # what it has used until now
        if len(self._owner_of_client) >= MOST_CLIENTS:
            for gone in self._owner_of_client.keys() - self.scheduler.clients.keys():
                del self._owner_of_client[gone]
        self._owner_of_client[client] = owner

    def owner_of(self, client: str) -> str:
        """Return the owner of a client's jobs; by its machine if the client has said none.

        Otherwise all notebooks together would be one owner, under one limit.
        """
        if owner := self._name_of(client) or self._owner_of_client.get(client):
            return owner
        comm = getattr(self.scheduler.client_comms.get(client), "comm", None)
        return "unknown" if comm is None else _unknown_at(comm.peer_address)

    def _payer_of(self, name: str) -> tuple[str, str, str]:
        """Return the owner, kind and job that pay for a pool: none for unowned tasks."""
        if name in self.reports or self.engine.jobs[name].reports:
            return self.owner.get(name, ""), self.memory.kind_name(name) or name, name
        return self.owner_of(name.removeprefix("other:")), "", ""

    def pool_of_unowned(self, client: str) -> Pool:
        """Return the pool of a client's unowned tasks, which get a fair share while jobs run."""
        name = f"other:{client}"
        if (already := self.pools.pools.get(name)) is not None:
            return already
        weight = self._settings.other_weight
        owner = self._name_of(client) or self._owner_of_client.get(client, "")
        if self.engine.owners is not None:
            owner = self.owner_of(client)
        self.engine.add_job(
            name,
            monotonic(),
            weight=weight,
            latest=self._latest_of(owner),
            reports=False,
            owner=owner,
        )
        self.owner[name] = owner
        group = self._group_of(owner)
        pool = self.pools.add(name, client, reports=False, weight=weight, owner=owner, group=group)
        pool.floor = bool(self._settings.reserve)
        self._changed()
        return pool

    @property
    def contended(self) -> bool:
        """Whether tasks must be held: not for one job alone, nor under the policy ``none``.

        They are while workers drain, and in any case while a job is paused or waits for another one
        of its owner, or an owner has a limit.
        """
        limited = any(group.is_limited for group in self.pools.groups.values())
        if limited or self.paused or self.queued:
            return True
        if not self.engine.traits.holds_tasks:
            return False
        if self.pools.pools and any(a in self.scheduler.workers for a in self.pools.draining):
            return True
        strict = not self._settings.lend and any(
            job.max_share is not None for job in self.engine.jobs.values()
        )
        return self.pools.contended or strict

    # Decisions

    def observe_demand(self) -> list[str]:
        """Pass the numbers of ready and running tasks, and the work left, to the engine.

        Work is counted by tasks until a job reports a loss; then by its iterations. In a job with
        stages this holds for each stage, and past runs tell the stages to come. Returns the
        pools of unowned tasks that have no unfinished task left.
        """
        over = []
        for name, pool in self.pools.pools.items():
            if not pool.reports and not pool.unfinished:
                over.append(name)
            else:
                self.engine.observe_demand(name, pool.demand - self.pools.limits.blocked(pool))
                if pool.stages is None:
                    left = math.nan if self.reports.get(name) else pool.submitted
                    self.engine.observe_left(name, left, more=pool.is_open)
                else:
                    here, after = pool.stages.seconds_left(self.memory.expected_stages(name))
                    self.engine.observe_left(name, here + after)
                    self.engine.observe_after(name, after)
        return over

    def decide(self) -> None:
        """Decide, and apply the grants to the pools."""
        engine, pools, running = self.engine, self.pools, self.scheduler.running
        workers = {ws.address: ws.nthreads for ws in running if ws.address not in pools.draining}
        if not (pools.pools and workers):
            return
        self._reserve(sum(workers.values()))
        if self.accounts.half_life is not None:
            engine.observe_use(self.accounts.lately(self.owner.values()))
        engine.set_reserved(self.reservations.now())
        if engine.owners is not None:
            engine.set_spare(set(filter(self.is_spare, self.owner.values())))
        eligible = {
            name: [
                ws.address
                for ws in running
                if all(ws.resources.get(r, 0) >= n for r, n in needs.items())
            ]
            for name, needs in self.resources.items()
            if needs
        }
        affinity = {name: pool.bytes_at for name, pool in pools.pools.items()}
        grants = engine.reallocate(workers, monotonic(), eligible=eligible, affinity=affinity)
        pools.apply(
            grants.terms(), grants.owners, engine.jobs.owner, by_service=engine.traits.by_service
        )
        if not self.epochs:
            self.record()

    def _reserve(self, capacity: int) -> None:
        """Divide the reserved threads among the pools of unowned tasks, as their floors."""
        if reserve := self._settings.reserve:
            others = [name for name, job in self.engine.jobs.items() if not job.reports]
            for name in others:
                self.engine.set_floor(name, reserve * capacity / len(others))

    def record(self) -> None:
        """Record the grants of all jobs for `history`, and check their goals, once per epoch."""
        self.goals.check()
        self._look_for_silence()
        self._look_for_blocked()
        self.accounts.count_waits(filter(self.is_waiting, self.reports))
        names, now = list(self.reports), time()
        running = self.accounts.running()
        pools = self.pools.pools
        stages = {name: at["name"] for name in names if (at := stage_of(pools[name])) is not None}
        self.epochs.add(now, names, self._values(names, running), stages)
        unowned = sum(seconds for name, seconds in running.items() if name not in self.reports)
        self.unowned.record(now, unowned, self.scheduler.total_nthreads)

    def _look_for_silence(self) -> None:
        """Alert of jobs that have reported nothing for long, although nothing kept them from it."""
        now = monotonic()
        for name, pace in self.pace.items():
            if now - pace.since <= SILENT / 2:
                continue
            if self.pools.pools[name].paused or self.is_waiting(name) or not self._acts(name):
                pace.since = now
            elif (message := self.silence(name)) is not None:
                self.goals.tell_once(name, "silent", message)

    def _look_for_blocked(self) -> None:
        """Alert of jobs whose limits never let them start; of those that are to stop, end that."""
        for name in list(self.reports):
            pool = self.pools.pools[name]
            if name in self.queued and (owner := self.admission.waits_for_itself(name)):
                self.goals.tell_once(name, "blocked", f"is blocked: {self._around(name, owner)}")
            if not (pool.ready and self.pools.tracker.holding) or pool.paused:
                continue
            blocked = self.blocked(pool)
            if blocked is None:
                continue
            if name in self.stopping:
                if not (blocked.together and self.reports[name]):  # else it ends at its next report
                    self.pools.control.cancel(blocked.tasks)
            elif self.goals.tell_once(name, "blocked", f"is blocked: {blocked.why}"):
                self.tell_client(name, BLOCKED, why=blocked.why)

    def _around(self, name: str, owner: str) -> str:
        most = self.terms_of(owner).max_jobs
        return f"the blocks around it have all {most:g} jobs of {owner}, and may wait for its end"

    def blocked(self, pool: Pool) -> Blocked | None:
        """Return what can never start of a pool under the limits as they are; None if all can."""
        if pool.group is None and not (pool.gang or self.pools.tracker.gangs):
            return None
        return find_blocked(self.pools, pool)

    def _acts(self, name: str) -> bool:
        """Return whether a job runs tasks, or its driver computes, and so could report."""
        unfinished = self.pools.pools[name].unfinished
        # The driver of a search reports nothing: all of its models are done.
        is_search = self.engine.jobs.search.get(name) == name
        drives = not unfinished and not is_search
        return drives or any(ts.state == "processing" for ts in unfinished)

    def silence(self, name: str) -> str | None:
        """Return for how long a job has been silent, in words; None if it is not silent."""
        pace, now = self.pace.get(name), monotonic()
        if pace is None or not pace.is_silent(now):
            return None
        return f"silent for {now - pace.last:.3g} s, usually {pace.seconds:.2g} s"

    def is_waiting(self, name: str) -> bool:
        """Return whether a job has tasks to run, and none of them has a thread."""
        pool = self.pools.pools[name]
        if pool.has_thread or pool.paused:
            return False
        return bool(
            pool.ready
            or pool.waiting
            or any(ts.state in ("queued", "no-worker") for ts in pool.unfinished)
        )

    def remember(self, name: str) -> None:
        """Add the last iteration of a job that is about to end to the history."""
        if name in self.reports:
            self.epochs.end(name, self._values([name], self.accounts.running()), time())

    def _values(self, names: Sequence[str], running: Mapping[str, float]) -> dict[str, Any]:
        return values_of_jobs(self.engine, self.pools.pools, names, running)
