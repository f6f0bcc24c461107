"""Jobs of one scheduler: keeps the engine and the pools in step.

`SlaqPlugin` passes on requests, reports and tasks, and calls for decisions.
"""

from __future__ import annotations

import math
import uuid
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic, time
from typing import Any

from distributed import Scheduler
from distributed.comm.core import Comm

from dask_slaq.config import PluginSettings
from dask_slaq.core.dispatch import Group
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import NonFiniteLoss, UnknownJob
from dask_slaq.core.jobs.history import Epochs
from dask_slaq.core.jobs.settings import JOB_SETTINGS, OF_ENGINE, check_job_settings, given_settings
from dask_slaq.core.run_history import kind_of_name
from dask_slaq.core.settings import MOST_ITERATIONS, STOP, shown
from dask_slaq.run_history import RunHistory
from dask_slaq.scheduler.jobs.admission import Admission, BudgetWatch, KnownJobs
from dask_slaq.scheduler.jobs.goals import Goals
from dask_slaq.scheduler.jobs.values import Pace, values_of_jobs
from dask_slaq.scheduler.owners.accounts import Accounts, UnownedUsage
from dask_slaq.scheduler.owners.identity import ClientOwners
from dask_slaq.scheduler.owners.reserved import KeptReservations
from dask_slaq.scheduler.pools import Pool, Pools

__all__ = ["ScheduledJobs"]

#: Jobs that ended and are remembered.
MOST_ENDED = 10_000
#: Settings of a job that `Goals` follow.
GOAL = ("target", "target_kind", "by", "stop")


class ScheduledJobs(KnownJobs):
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
        engine: Engine,
        pools: Pools,
        settings: PluginSettings,
        changed: Callable[[], None],
        run_history: RunHistory,
        name_of: Callable[[str], str | None],
        alert: Callable[[dict[str, Any]], object],
    ) -> None:
        self.scheduler, self.engine, self.pools = scheduler, engine, pools
        self.reports = {}
        self._runs: dict[str, str] = {}
        self._comms: dict[str, Comm | None] = {}
        self.owner, self.within, self.pace = {}, {}, {}
        self.queued, self.stopping = set(), set()
        self.entered: dict[str, float] = {}  # when the block was entered, Unix seconds
        self.paused: set[str] = set()
        self.admission = Admission(self)
        # Alerts of the last jobs that ended, with ``core_seconds`` and ``ended``, Unix seconds.
        self.ended: deque[dict[str, Any]] = deque(maxlen=MOST_ENDED)
        self.goals = Goals(self)
        self.resources: dict[str, dict[str, float]] = {}  # that each task of a job needs
        self.value: dict[str, float] = {}  # of an hour of a job's time, where it was told
        self.epochs = Epochs(settings.history)
        self.unowned = UnownedUsage(settings.history)
        self._settings, self._changed, self.run_history = settings, changed, run_history
        self.other_weight = settings.other_weight  # of tasks outside of jobs
        self.alert = alert
        self.owners = ClientOwners(scheduler, name_of, lambda: self.accounts.settle())
        self.accounts = Accounts(
            run_history.store,
            scheduler,
            pools.records,
            pools.charges,
            self._payer_of,
            self.owners.of,
            settings.half_life,
            lambda: self.budgets.check(),
        )
        self.reservations = KeptReservations(run_history.store, lambda: scheduler.total_nthreads)
        self.budgets = BudgetWatch(self)
        self.budgets.check()
        run_history.lately(time() - 3600.0, self._put_back)  # of an earlier scheduler

    def _put_back(self, ended: list[dict[str, Any]]) -> None:
        """Add jobs that ended on earlier schedulers."""
        known = {(each["job"], each["ended"]) for each in self.ended}
        needed = ("job", "owner", "event", "message", "ended")
        whole = [each for each in ended if all(key in each for key in needed)]
        self.ended.extendleft(
            each for each in reversed(whole) if (each["job"], each["ended"]) not in known
        )

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
        if given["max_slowdown"] is None:
            given["max_slowdown"] = self._max_slowdown_of(owner)
        kind = settings["kind"] or kind_of_name(name)
        self.engine.add_job(name, monotonic(), owner=owner, kind=kind, search=search, **given)
        self.goals.begin(name, **given_settings(settings, GOAL))
        self.owner[name] = owner
        self.owners.know(client, owner)
        self.epochs.begin(name, time())
        self.resources[name] = settings["resources"]
        if settings["value_per_hour"] is not None:
            self.value[name] = settings["value_per_hour"]
        if within in self.reports:  # so no circle of blocks is made up
            self.within[name] = within
        self.reports[name] = 0
        self._runs[name], self._comms[name] = run or uuid.uuid4().hex, comm
        group = self._group_of(owner)
        pool = self.pools.add(
            name, client, weight=weight, gang=settings["gang"], owner=owner, group=group
        )
        # From the start, and not only once it was granted something.
        pool.granted.most = given["max_share"] or math.inf
        pool.floor = bool(given["min_share"])
        if self.engine.owners is not None:
            self.queued.add(name)
            self.admit()
        self._hold_back(name)

    def hand_over(self, name: str, client: str, comm: Comm | None, run: str | None) -> None:
        """Make a running job that of another client, in its block `run`."""
        pool = self.pools.pools[name]
        self.owners.know(client, self.owner[name])
        self._runs[name], self._comms[name] = run or uuid.uuid4().hex, comm
        pool.client = client
        self.entered.pop(name, None)

    def admit(self) -> None:
        """Let waiting jobs begin, oldest first, as far as their owners may have more at once."""
        full: set[str] = set()  # owners that may have no other one, so that each is counted once
        for name in [name for name in self.reports if name in self.queued]:
            if not self.admission.must_wait(name, full):
                self.queued.discard(name)
                self._hold_back(name)

    def budgets_changed(self) -> None:
        """Let jobs begin that may now, and decide soon."""
        self.admit()
        self._changed()

    def _group_of(self, owner: str) -> Group | None:
        """Return the group of an owner until the next decision; None without owners."""
        if self.engine.owners is None:
            return None
        found: Group | None = None
        for name in reversed(self.line(owner)):
            terms, group = self.terms_of(name), self.pools.groups.get(name)
            found = group or Group(
                terms.max_threads,
                on_leftovers=self.budgets.is_over(owner),
                resources=terms.max_resources or {},
                name=name,
                team=found,
            )
        return found

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

    def heir_of(self, name: str) -> Pool | None:
        """Return the pool that a job which ends leaves its unfinished tasks to, if any.

        While other jobs run, these join the unowned tasks of its client. Otherwise they are left to
        plain Dask, as they are once nobody follows tasks any more: records of tasks that have ended
        since must not be handed on.
        """
        pool = self.pools.pools.get(name)
        if pool is None or not (pool.reports and pool.unfinished and len(self.reports) > 1):
            return None
        return self.pool_of_unowned(pool.client) if self.pools.follows_tasks() else None

    def close(self, name: str, outcome: str | None = None) -> None:
        """Forget a job whose pool is removed, and remember its run if it has an outcome."""
        self.pools.pools.pop(name, None)  # if that failed: a job of this name may begin again
        if name not in self._runs and name not in self.engine.jobs:
            return
        known: list[dict[str, Any]] = [self.resources, self.value, self.reports, self.pace]
        for each in (*known, self._runs, self._comms, self.entered):
            each.pop(name, None)
        for some in (self.stopping, self.paused, self.queued):
            some.discard(name)
        outer = self.within.pop(name, None)
        for inner in [inner for inner, around in self.within.items() if around == name]:
            if outer is None:
                del self.within[inner]
            else:
                self.within[inner] = outer
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
        used = self.engine.jobs[name].attained
        if (alert := self.goals.end(name, outcome)) is not None:
            self.ended.append({**alert, "core_seconds": used, "ended": time()})
            self.run_history.keep_event("ended", self.ended[-1])
        grant = self.engine.grants.get(name)
        reduction = 1.0 - grant.normalized if grant else 0.0
        self.accounts.job_ended(name, outcome, reduction)

    def close_all(self) -> None:
        """Forget every job and all unowned tasks."""
        self.queued.clear()
        for name in list(self.pools.pools):
            try:
                self.pools.remove(name)
            finally:
                self.close(name)

    # What they do

    def report(self, job: str, loss: Any, step: Any = None, *, anew: bool = False) -> None:
        """Record the `loss` of one iteration, the next one unless it is the iteration `step`.

        `anew` if the training begins again with it. Raises `NonFiniteLoss`.
        """
        self.reports[job] += 1
        if isinstance(loss, bool) or not isinstance(loss, int | float):
            raise NonFiniteLoss(f"a loss must be a number, not {shown(loss)}")
        if anew:
            self.run_history.begin_anew(job)
            self.goals.begin_again(job)
        now = monotonic()
        known = isinstance(step, int) and self.engine.jobs[job].iteration < step <= MOST_ITERATIONS
        self.engine.report(job, loss, now, step if known else None)
        if (pace := self.pace.get(job)) is None:
            pace = self.pace[job] = Pace(now)
        pace.step(now)

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
        if stream is not None and self.is_of(name, stream.comm) and not stream.closed():
            stream.send({"op": what, "run": self._runs[name], **more})

    def cap(self, name: str, most: float | None, *, gives_way: bool = False) -> None:
        """Cap the threads of a job; None for no cap. One that `gives_way` may borrow more."""
        self.engine.set_job(name, max_share=most)
        self.pools.pools[name].granted.most = most or math.inf
        self.pools.pools[name].gives_way = gives_way
        self.pools.pools[name].touch()

    def expect(self, job: str, iterations: Any) -> None:
        """Record the maximum number of `iterations` to come of a running job; None if unknown.

        Raises `InvalidSetting` if that is not a number of iterations.
        """
        JOB_SETTINGS["max_iter"].check(iterations)
        more = None if iterations is None else self.reports[job] + iterations
        more = None if more is None else min(more, MOST_ITERATIONS)
        self.engine.set_max_iter(job, more)

    def value_of(self, name: str) -> float:
        """Return what an hour of a job's time is worth; nan for what its workers cost."""
        if name in self.value or self.engine.owners is None:
            return self.value.get(name, math.nan)
        return self.engine.owners.value_of(self.owner[name])

    def _max_slowdown_of(self, owner: str) -> float | None:
        return None if self.engine.owners is None else self.engine.owners.max_slowdown_of(owner)

    def _payer_of(self, name: str) -> tuple[str, str, str]:
        """Return the owner, kind and job that pay for a pool: none for unowned tasks."""
        if name in self.reports or self.engine.jobs[name].reports:
            return self.owner.get(name, ""), self.run_history.kind_name(name) or name, name
        return self.owners.of(name.removeprefix("other:")), "", ""

    def pool_of_unowned(self, client: str) -> Pool:
        """Return the pool of a client's unowned tasks, which get a fair share while jobs run."""
        name = f"other:{client}"
        if (already := self.pools.pools.get(name)) is not None:
            return already
        of = self.owners.named if self.engine.owners is None else self.owners.of
        owner = of(client)
        self.engine.add_job(
            name,
            monotonic(),
            weight=self.other_weight,
            max_slowdown=self._max_slowdown_of(owner),
            reports=False,
            owner=owner,
        )
        self.owner[name] = owner
        group = self._group_of(owner)
        pool = self.pools.add(
            name, client, reports=False, weight=self.other_weight, owner=owner, group=group
        )
        pool.floor = bool(self._settings.reserve)
        self._changed()
        return pool

    @property
    def contended(self) -> bool:
        """Whether tasks must be held: not for one job alone, nor under the policy ``none``.

        They are for a search, while workers drain, and in any case while a job is paused or waits
        for another one of its owner, or an owner has a limit.
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
        if self.pools.contended or strict:
            return True
        # Tasks that Dask has sent stay on their worker, behind models that wait there.
        is_search = any(name == job for job, name in self.engine.jobs.search.items())
        return is_search and not self.pools.overloaded

    # History

    def record(self) -> None:
        """Record the grants of all jobs for `history`, and check their goals, once per epoch."""
        self.goals.check()
        names, now = list(self.reports), time()
        running = self.accounts.running()
        self.epochs.add(now, names, self._values(names, running))
        unowned = sum(seconds for name, seconds in running.items() if name not in self.reports)
        unowned += self.pools.charges.unowned
        self.unowned.record(now, unowned, self.scheduler.total_nthreads)

    def remember(self, name: str) -> None:
        """Add the last iteration of a job that is about to end to the history."""
        if name in self.reports:
            self.epochs.end(name, self._values([name], self.accounts.running()), time())

    def _values(self, names: Sequence[str], running: Mapping[str, float]) -> dict[str, Any]:
        return values_of_jobs(self.engine, self.pools.pools, names, running)
