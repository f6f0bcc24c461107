"""Engine: turns reports and task times into grants.

Three rules hold. Time and workers are passed as arguments: the engine reads no clock and does no
I/O. A call that raises leaves every job unchanged. A job without new reports is not refitted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

import numpy as np

from dask_slaq.core.competing import in_order, spread, yield_to_first
from dask_slaq.core.forecast import Predictor, diverging, predictor_named
from dask_slaq.core.gains import build_snapshot
from dask_slaq.core.grants import Decision, Grants
from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.jobs.ends import Ends
from dask_slaq.core.jobs.jobs import Epoch, JobOrder, JobTable
from dask_slaq.core.jobs.promises import advance_fair_clock, credit_entitlement, refill_tokens
from dask_slaq.core.jobs.reports import as_loss, is_usable
from dask_slaq.core.jobs.settings import (
    CHANGEABLE,
    JOB_SETTINGS,
    OF_ENGINE,
    as_columns,
    check_changes,
    check_job_settings,
)
from dask_slaq.core.owners.owners import Owners
from dask_slaq.core.owners.terms import OwnerGrant, OwnerTerms
from dask_slaq.core.placement import Placement, Workers, place_all
from dask_slaq.core.policies import (
    Allocation,
    Policy,
    Snapshot,
    Traits,
    traits_of,
    with_efficiency_cap,
)
from dask_slaq.core.policies import policy as policy_named
from dask_slaq.core.remembering import Remembering
from dask_slaq.core.run_history import Kind, PastRuns
from dask_slaq.core.runtime import Speeds
from dask_slaq.core.settings import PRESETS, check_engine_settings

#: Settings of running jobs that `Engine.set_job` changes.
CHANGES = tuple(name for name in CHANGEABLE if name in OF_ENGINE)


class Engine:
    """Allocator of threads to jobs by their predicted loss reduction.

    Call `add_job` when a job arrives, `observe_task` after each of its tasks, `report` after each
    of its iterations, and `remove_job` when it ends. Once per epoch, `reallocate` decides the
    grants and returns those that changed. Every `now` is in seconds on one clock of the caller.
    Methods raise `UnknownJob` if no job of this name is running.

    - `policy`: a policy, or its name in `dask_slaq.core.policies.POLICIES`.
    - `epoch`: seconds between two reallocations.
    - `normalizer`: divisor of losses: "range", the predicted whole range, or "largest-change", the
      paper's largest change so far.
    - `predictor`: object, "paper" for the paper's weighted fits, or None for the default.
    - `runtime`: model of iteration times: "observed", or "linear", the paper's c.S/N.
    - `max_slowdown`: factor, at least 1, of its fair time within which a job of known length
      ends: 1 to share fairly, inf for no promise.
    - `floor`: fraction in [0, 1] of its fair entitlement that a job of unknown length gets.
    - `move_pause`: seconds for which a newly granted thread does not compute, because data is
      moving to it.
    - `owners`: weights and limits of owners. None lets jobs compete whoever owns them.
    - `past_runs`: those with which jobs of a known kind are compared, and to which their runs are
      added when they end.

    A policy may preset some of these, see `Traits`: settings that are left at their defaults.

    >>> engine = Engine("max-total")
    >>> engine.add_job("steep", now=0.0)
    >>> engine.add_job("flat", now=0.0)
    >>> for i in range(8):
    ...     for job, loss in (("steep", 0.7**i), ("flat", 1 + 0.1**i)):
    ...         engine.observe_task(job, seconds=1.0, at_once=8)
    ...         engine.report(job, loss, now=float(i))
    >>> grants = engine.reallocate({"tcp://a": 4, "tcp://b": 4}, now=8.0)
    >>> grants["steep"].share > grants["flat"].share
    True
    """

    def __init__(
        self,
        policy: str | Policy = "first-to-target",
        *,
        epoch: float = 1.0,
        normalizer: str = PRESETS["normalizer"],
        runtime: str = PRESETS["runtime"],
        max_slowdown: float = PRESETS["max_slowdown"],
        floor: float = PRESETS["floor"],
        predictor: Predictor | str | None = PRESETS["predictor"],
        move_pause: float = 0.0,
        owners: Mapping[str, OwnerTerms] | None = None,
        past_runs: PastRuns | None = None,
    ) -> None:
        check_engine_settings(epoch, normalizer, floor, move_pause, max_slowdown, runtime)
        self.set_policy(policy)
        self.epoch = epoch
        self.normalizer = normalizer
        self.runtime = runtime
        self.predictor = predictor
        self.floor = floor
        self.max_slowdown = max_slowdown
        self.move_pause = move_pause
        self.jobs = JobTable()
        self.owners: Owners | None = None
        if owners is not None:
            self._share_by_owner().terms = owners
        self.grants = Grants()
        made = self.in_force("predictor")
        is_named = made is None or isinstance(made, str)
        self.forecaster: Predictor = predictor_named(made, past_runs) if is_named else made
        self.remembering = Remembering(past_runs, self.jobs, self.forecaster)
        self._workers: Workers | None = None
        self._last: float | None = None
        # Of the last decision: worker sets, gains as a function of threads, and ends of the jobs.
        self._sets: Placement | None = None
        self._gain: Callable[[FloatArray], FloatArray] | None = None
        self._ends: Ends | None = None

    @property
    def traits(self) -> Traits:
        """What the policy says of itself."""
        return traits_of(self.policy)

    def in_force(self, setting: str) -> Any:
        """Return the value of a setting that the policy may preset, if it was left at its default.

        The predictor stays that of the first policy.
        """
        given = getattr(self, setting)
        preset = self.traits.presets.get(setting, given)
        return preset if given == PRESETS[setting] else given

    def add_job(
        self,
        job: str,
        now: float,
        *,
        reports: bool = True,
        owner: str = "",
        kind: Kind | None = None,
        search: str = "",
        **settings: Any,
    ) -> None:
        """Add a job, or raise `DuplicateJob`, `InvalidSetting` or, for its target, `NonFiniteLoss`.

        The `settings` are those that `OF_ENGINE` lists: `min_share` and `max_share` are floor and
        cap, in threads; `max_slowdown` is the factor of the job's own fair time within which it
        ends, that of all by default; `target` is a loss in raw units. `reports` is False for work
        without a loss, which goes by the tasks that it has left. By its `kind`, like past runs are
        found. Jobs of one `search` share what they get together: those with the lowest predicted
        final loss first.
        """
        self.jobs.refuse_duplicate(job)
        checked = check_job_settings(settings, OF_ENGINE)
        known = {} if kind is None or not self.remembering.takes_kind else {"kind": kind}
        if reports:
            self.forecaster.add(job, target=checked["target"], **known)
        self.jobs.add(
            job,
            owner,
            search if reports else "",
            reports=reports,
            arrival=now,
            **as_columns(checked),
        )
        if kind is not None and reports:
            self.remembering.add(job, kind)

    def remove_job(
        self, job: str, now: float, outcome: str | None = None, *, ended: float | None = None
    ) -> None:
        """Remove a job that ends.

        All about it is forgotten, except that the prior for other jobs keeps how it scaled, and the
        past runs its run if it has an outcome: "done", "stopped" or "failed". Past runs
        are ordered by `ended`, in seconds since 1970; `now` by default.
        """
        row, column = self.jobs.row(job), self.jobs.table.column
        if outcome == "done":
            self.jobs.ends.learn(row, now)
        self.remembering.remove(job, outcome, now if ended is None else ended)
        if self.owners is not None:
            attained = self.jobs.runtimes.column["attained"][row]
            unpaid = float(attained - column["attained_by_owner"][row])
            self.owners.charge(self.jobs.owner[job], unpaid)
        if column["reports"][row]:
            self.forecaster.remove(job)
        self.jobs.remove(job)
        self.grants.position.pop(job, None)
        if self.owners is not None and not len(self.jobs):
            self.owners.rest()

    def set_kind(self, job: str, kind: Kind) -> None:
        """Set the kind of a running job, which may be known only when its training begins."""
        if not self.jobs[job].reports:
            return
        compare = getattr(self.forecaster, "set_kind", None)
        if self.remembering.takes_kind and compare is not None:
            compare(job, kind)
        self.remembering.add(job, kind)

    def likeness(self, job: str) -> int:
        """Return the number of past runs on which the forecast of a job rests."""
        likeness = getattr(self.forecaster, "likeness", None)
        return int(likeness(job)) if self.jobs[job].reports and likeness is not None else 0

    def report(self, job: str, loss: float, now: float, step: int | None = None) -> None:
        """Record the loss after an iteration of a job, which must report. O(1).

        `step` is the number of the iteration, from 1; the next one by default. A loss that is not
        finite only counts as an iteration. Raises `NonFiniteLoss` if it is not a number.
        """
        row, loss = self.jobs.row(job), as_loss(loss)
        if is_usable(loss):
            self.forecaster.report(job, loss)
        self.jobs.runtimes.end_iteration(row, self._since(now), loss, step)

    def observe_task(self, job: str, seconds: float, at_once: float = 1) -> None:
        """Charge a job with core-seconds of a finished task, which ran `at_once` with others."""
        rows = self.jobs.rows
        row = rows[job] if job in rows else self.jobs.row(job)  # which raises
        self.jobs.runtimes.observe_task(row, seconds, at_once)

    def observe_demand(self, job: str, tasks: float) -> None:
        """Record how many `tasks` of a job are ready or running now."""
        self.jobs.table.column["demand"][self.jobs.row(job)] = tasks

    def observe_left(self, job: str, seconds: float, *, more: bool = False) -> None:
        """Record the core-seconds that the submitted tasks of a job still take; nan if unknown.

        If `more` tasks may come, they do not tell when it ends.
        """
        column, row = self.jobs.table.column, self.jobs.row(job)
        column["submitted"][row] = seconds
        column["left"][row] = math.nan if more else seconds

    def observe_use(self, used: Mapping[str, float]) -> None:
        """Record what owners `used` lately, in core-seconds; those that used much yield."""
        if self.owners is not None:
            self.owners.observe_use(used)

    def set_spare(self, owners: Collection[str]) -> bool:
        """Let `owners` run on what nobody else wants, and no others. Returns if that is new."""
        return self.owners is not None and self.owners.set_spare(owners)

    def set_reserved(self, threads: Mapping[str, float]) -> bool:
        """Let owners deserve at least so many `threads`, and no others. Returns if that is new."""
        if threads:
            self._share_by_owner()
        return self.owners is not None and self.owners.set_reserved(threads)

    def set_floor(self, job: str, threads: float) -> bool:
        """Set the floor of a job in `threads`, 0 for none. Returns whether it changed."""
        return self._set("floor", job, threads)

    def set_max_iter(self, job: str, max_iter: int | None) -> bool:
        """Set the total iterations of a job, None if unknown. Returns whether they changed."""
        JOB_SETTINGS["max_iter"].check(max_iter)
        column, row = self.jobs.table.column, self.jobs.row(job)
        place = self.grants.position.get(job)
        if column["max_iter"][row] == math.inf and place is not None and self._ends is not None:
            # So far, what it had submitted was expected to end: that is not its end.
            column["end_at"][row] = column["end_promised"][row] = math.nan
            self._ends.promised[place] = math.nan  # unknown until the next decision
        return self._set("max_iter", job, math.inf if max_iter is None else max_iter)

    def set_job(self, job: str, **settings: Any) -> None:
        """Change `settings` of a running job, those of `add_job` that may change; None keeps one.

        A `min_share` of 0 and a `max_share` of inf remove the limit.
        """
        row, given = self.jobs.row(job), {k: v for k, v in settings.items() if v is not None}
        checked = check_changes(given, self.jobs[job].settings, CHANGES)
        set_target = getattr(self.forecaster, "set_target", None)  # optional for a predictor
        if "target" in checked and set_target is not None:
            set_target(job, checked["target"])
        for name, value in as_columns(checked).items():
            self.jobs.table.column[name][row] = value

    def pause(self, job: str, paused: bool = True) -> None:
        """Grant a job no threads from the next decision on, or again if not `paused`."""
        self.jobs.table.column["paused"][self.jobs.row(job)] = paused

    def set_policy(self, policy: str | Policy) -> None:
        """Decide by another policy from the next decision on."""
        self.policy: Policy = policy_named(policy) if isinstance(policy, str) else policy

    def set_owner(self, owner: str, terms: OwnerTerms) -> None:
        """Set the `terms` of an `owner`. If no owner had any, jobs share by owner from now on."""
        owners = self._share_by_owner()
        owners.terms = {**owners.terms, owner: terms}

    def _share_by_owner(self) -> Owners:
        """Return the owners; from the first terms or reservation on, jobs share by them."""
        if self.owners is None:
            self.owners = Owners({}, self.jobs.teams)
        return self.owners

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Grants:
        """Decide the grants of all jobs until the next call. Returns those that changed.

        `workers` have the threads of each address. `eligible` has the addresses that a job may use
        because they supply its resources; jobs that are not in it may use all. `affinity` has the
        bytes of each job's data on each worker.
        """
        before = self.grants
        self.grants = self._decide(workers, now, eligible or {}, affinity or {})
        return self.grants.since(before)

    def next_thread(self) -> dict[str, float]:
        """Return the predicted fall of each job's normalized loss by one more thread."""
        decision = self.grants.decision
        if decision is None or self._gain is None:
            return {}
        more = self._gain(decision.share + 1.0) - self._gain(decision.share)
        known = np.isfinite(decision.predicted)
        return {name: more.item(i) for name, i in self.grants.position.items() if known[i]}

    def end_of(self, job: str, now: float) -> dict[str, float] | None:
        """Return when a job ends, as of the last decision; None if its length is unknown.

        The values are in seconds from `now`: ``fair``, on a cluster that shares fairly;
        ``promised``, at the latest (inf without a promise); ``expected``, and the 80 % band ``low``
        to ``high``, nan while too little is known; ``before``, what was promised when a fifth of
        its work was done (nan until then). ``threads`` are those of the cluster at that time.
        """
        place, ends = self.grants.position.get(job), self._ends
        if place is None or ends is None or self._last is None:
            return None
        found = {name: float(each[place]) for name, each in ends._asdict().items()}
        if math.isnan(found["promised"]):
            return None
        column, row = self.jobs.table.column, self.jobs.row(job)
        found = {name: seconds - (now - self._last) for name, seconds in found.items()}
        found["before"] = column["end_promised"].item(row) - now
        return {**found, "threads": column["end_threads"].item(row)}

    def _since(self, now: float) -> float:
        """Return the seconds since the last reallocation, at least 0; 0 before the first one."""
        return 0.0 if self._last is None else max(now - self._last, 0.0)

    def _set(self, setting: str, job: str, value: float) -> bool:
        column, row = self.jobs.table.column[setting], self.jobs.row(job)
        changed = bool(column[row] != value)
        column[row] = value
        return changed

    def _decide(
        self,
        workers: Mapping[str, int],
        now: float,
        eligible: Mapping[str, Collection[str]],
        affinity: Mapping[str, Mapping[str, float]],
    ) -> Grants:
        """Return the grants of all jobs. The steps depend on each other in this order."""
        elapsed, self._last = self._since(now), now
        self._workers = Workers.of(workers, self._workers)
        epoch = Epoch(now, elapsed, self.epoch, self._workers.total)
        jobs, order = self.jobs, self.jobs.order()
        weight, speeds = self._learn(order, elapsed)
        if not order.names:
            self._sets, self._gain, self._ends = None, None, None
            return Grants()
        room, total = order.capacity(self._workers, eligible), jobs.total(order.rows, speeds.work)
        fair = credit_entitlement(jobs, epoch, weight)
        self._advance_fair_clock(order, epoch, weight, room, total)
        snapshot = build_snapshot(
            jobs,
            epoch,
            self.forecaster.forecast(order.reported),
            speeds,
            weight,
            room,
            normalizer=self.in_force("normalizer"),
            move_pause=self.move_pause,
            traits=self.traits,
        )
        allocation = self._allocate(snapshot)
        competing: list[IntArray] = []
        if order.searches:
            competing = self._rank(order, snapshot, speeds.work)
            allocation = yield_to_first(allocation, snapshot, competing)
        share = self._in_waves(allocation.share, snapshot, speeds)
        sets = place_all(order.names, share, self._workers, self._sets, eligible, affinity)
        blind = not self.traits.follows_losses  # such a policy keeps every promise by itself
        tokens, rate = refill_tokens(
            jobs,
            epoch,
            math.inf if blind else self.in_force("max_slowdown"),
            0.0 if blind else self.in_force("floor"),
            fair,
            snapshot.age,
            total,
            partial(spread, share=allocation.share, groups=competing),
        )
        if self.traits.by_tokens:
            tokens, rate = 0.0 * share, np.maximum(share, snapshot.floor)
        owners: Mapping[str, OwnerGrant] = {}
        if self.owners is not None:
            owners = self.owners.refill(jobs, order, epoch, snapshot.age)
        decision = Decision(
            **self._known(order, snapshot, share),
            share=share,
            index=allocation.index,
            tokens=tokens,
            rate=rate,
            sets=sets,
            blind=blind,
            by_tokens=self.traits.by_tokens,
            epoch=self.epoch,
            owners=owners,
        )
        jobs.runtimes.grant(order.rows, share, tokens)
        self._gain, self._sets = snapshot.gain, sets
        return Grants(decision, order.position)

    def _learn(self, order: JobOrder, elapsed: float) -> tuple[FloatArray, Speeds]:
        """Learn from what was reported since the last decision. Returns weights and speeds."""
        jobs, rows = self.jobs, order.rows
        jobs.runtimes.observe_iterations()
        jobs.runtimes.advance(rows, elapsed)
        weight = jobs.table.column["weight"][rows]
        if self.owners is not None:
            weight = self.owners.weights(jobs, order)
            self.owners.weigh(jobs, order, self.in_force("max_slowdown"))
        unbound = getattr(self.forecaster, "unbound", None)  # optional for a predictor
        if unbound is not None:
            for some in order.searches:
                if (jobs.runtimes.column["loss"][rows[some]] < 0).any():
                    unbound([order.names[i] for i in some.tolist()])
        self.forecaster.fit()
        jobs.runtimes.learn(rows)
        speeds = jobs.runtimes.speeds(rows)
        return weight, speeds.linear() if self.in_force("runtime") == "linear" else speeds

    def _advance_fair_clock(
        self, order: JobOrder, epoch: Epoch, weight: FloatArray, room: FloatArray, total: FloatArray
    ) -> None:
        """Let the fair cluster on paper go on, and forecast the ends of jobs."""
        limits: dict[str, Any] = {}
        if self.owners is not None:
            room = np.minimum(room, self.owners.limits(order))
            limits["within"] = partial(self.owners.within_limits, order, epoch.capacity)
        promise = self.in_force("max_slowdown")
        self._ends = advance_fair_clock(self.jobs, epoch, weight, room, total, promise, **limits)

    def _in_waves(self, share: FloatArray, snapshot: Snapshot, speeds: Speeds) -> FloatArray:
        """Round shares down to the fewest threads with as many waves per iteration; lend the rest.

        A job keeps its floor.
        """
        if self.in_force("runtime") == "linear":
            return share
        waves = snapshot.known & (speeds.work > 0)  # known by iterations, not by tasks alone
        fewest = np.maximum(speeds.fewest(share), snapshot.floor)
        return np.where((share >= 1) & waves, np.minimum(share, fewest), share)

    def _known(self, order: JobOrder, snapshot: Snapshot, share: FloatArray) -> dict[str, Any]:
        """Return what a decision tells of jobs that is not decided, by field of `Decision`."""
        rows, column, seen = order.rows, self.jobs.table.column, self.jobs.runtimes.column
        reported = snapshot.known & (seen["reports"][rows] > 0)
        counted = snapshot.known & ~reported
        return {
            "reports": column["reports"][rows] & snapshot.reporting & ~counted,
            "most": np.where(column["paused"][rows], 0.0, column["most"][rows]),
            "iteration": seen["step"][rows],
            "loss": seen["loss"][rows],
            "missed": seen["missed"][rows],
            "normalized": np.minimum(snapshot.normalized, 1.0),
            "predicted": np.where(reported, snapshot.gain(share), math.nan),
        }

    def _rank(self, order: JobOrder, snapshot: Snapshot, work: FloatArray) -> list[IntArray]:
        """Return the positions of the jobs of each search, in the order of their claims."""
        at, jobs = order.reporting, self.jobs
        rows, attained = order.rows[at], snapshot.attained[at]
        forecast = diverging(self.forecaster.forecast(order.reported), jobs.diverge(rows))
        begun = (attained > 0) | (jobs.table.column["demand"][rows] > 0)
        # What is begun ends before tasks of the search itself begin more.
        begun &= [jobs.search.get(name) != name for name in order.reported]
        place = {position: i for i, position in enumerate(at.tolist())}
        groups = [np.array([place[i] for i in some.tolist()]) for some in order.searches]
        ranked = in_order(forecast, jobs.ahead(rows), attained, work[at], begun, groups)
        return [at[some] for some in ranked]

    def _allocate(self, snapshot: Snapshot) -> Allocation:
        """Return the allocation of the policy, within the shares of owners if there are any."""
        allocate: Callable[[Snapshot], Allocation] = self.policy
        if self.traits.follows_losses:
            allocate = partial(with_efficiency_cap, self.policy)
        allocation = allocate(snapshot)
        if self.owners is None:
            return allocation
        share = self.owners.divide(allocate, snapshot, self.jobs.order())
        return Allocation(share, allocation.index)
