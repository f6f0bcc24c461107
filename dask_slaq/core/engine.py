"""Engine: turns reports and task times into grants.

Three rules hold. Time and workers are passed as arguments: the engine reads no clock and does no
I/O. A call that raises leaves every job unchanged. A job without new reports is not refitted.
The simulator and the scheduler plugin run the same class. Its state is one row per job in shared
arrays, and each decision is a vectorized pass over the rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from dask_slaq.core.decisions import Decisions
from dask_slaq.core.forecast import LossPredictor, Predictor
from dask_slaq.core.grants import Grant, Grants
from dask_slaq.core.jobs import Jobs
from dask_slaq.core.memory import Kind, PastRuns
from dask_slaq.core.owners import Owners, OwnerTerms
from dask_slaq.core.placement import Workers
from dask_slaq.core.policies import Policy
from dask_slaq.core.policies import policy as policy_named
from dask_slaq.core.remembering import Remembering
from dask_slaq.core.settings import check_engine_settings, check_job_settings
from dask_slaq.core.steering import Steering

__all__ = ["Engine", "Grant", "Predictor"]


class Engine(Steering):
    """Allocator of threads to jobs by their predicted loss reduction.

    Call `add_job` when a job arrives, `observe_task` after each of its tasks, `report` after each
    of its iterations, and `remove_job` when it ends. Once per epoch, `reallocate` decides the
    grants and returns those that changed. Every `now` is in seconds on one clock of the caller.

    Parameters
    ----------
    policy : str or Policy
        A policy, or the name of one in `dask_slaq.core.policies.POLICIES`.
    epoch : float
        Seconds between two reallocations, positive.
    normalizer : {"range", "largest-change"}
        Divisor of losses: the predicted whole range, or the paper's largest change so far.
    latest : float
        Factor, at least 1, of its fair time at which a job ends at the latest, if the work that it
        has is known: 1 to share fairly, inf for no promise.
    floor : float
        Fraction in [0, 1] of its fair entitlement that a job keeps over time whose work is unknown.
    predictor : Predictor, optional
        A new `LossPredictor` by default.
    move_pause : float
        Seconds for which a newly granted thread does not compute, because data is moving to it.
    strict : bool
        Whether jobs run only on the workers of their sets. If so, every job with ready or running
        tasks gets a part of a thread, because another job may be waiting for its results.
    owners : mapping of str to OwnerTerms, optional
        Weights and limits of owners. None lets jobs compete whoever owns them.
    memory : PastRuns, optional
        Past runs, with which jobs of a known kind are compared, and to which their runs are added
        when they end.

    Attributes
    ----------
    jobs : Jobs
        Mapping of str to `Job`.
    grants : Grants
        Mapping of str to `Grant`: the grants in force since the last `reallocate`.

    Raises
    ------
    UnknownPolicy, InvalidSetting

    Examples
    --------
    One job still improves, the other one hardly does:

    >>> engine = Engine("max-total")
    >>> engine.add_job("steep", now=0.0)
    >>> engine.add_job("flat", now=0.0)
    >>> for i in range(8):
    ...     for job, loss in (("steep", 0.7**i), ("flat", 0.1**i)):
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
        normalizer: str = "range",
        latest: float = 2.0,
        floor: float = 0.75,
        predictor: Predictor | None = None,
        move_pause: float = 0.0,
        strict: bool = False,
        owners: Mapping[str, OwnerTerms] | None = None,
        memory: PastRuns | None = None,
    ) -> None:
        check_engine_settings(epoch, normalizer, floor, move_pause, latest)
        self.policy: Policy = policy_named(policy) if isinstance(policy, str) else policy
        self.epoch = epoch
        self.normalizer = normalizer
        self.floor = floor
        self.latest = latest
        self.move_pause = move_pause
        self.strict = strict
        self.owners = None if owners is None else Owners(owners)
        self.jobs = Jobs()
        self.grants = Grants()
        self._predictor: Predictor = LossPredictor(memory) if predictor is None else predictor
        self._decisions = Decisions(self, self._predictor)
        self.remembering = Remembering(memory, self.jobs, self._predictor)
        self._workers: Workers | None = None
        self._last: float | None = None

    def add_job(
        self,
        job: str,
        now: float,
        *,
        weight: float = 1.0,
        min_share: float | None = None,
        max_share: float | None = None,
        latest: float | None = None,
        target: float | None = None,
        max_iter: int | None = None,
        reports: bool = True,
        owner: str = "",
        kind: Kind | None = None,
    ) -> None:
        """Add a job.

        Parameters
        ----------
        job : str
            Name, unique among the running jobs.
        now : float
            Arrival time, in seconds.
        weight : float
            Relative importance, from 1e-6 to 1e6.
        min_share, max_share : float, optional
            Floor and cap, in threads.
        latest : float, optional
            Factor of its fair time at which the job ends at the latest; that of all by default.
        target : float, optional
            Loss that the job should reach, in raw units.
        max_iter : int, optional
            Maximum number of iterations, if known.
        reports : bool
            False for work without a loss; it gets a fair share.
        owner : str
            Who the job belongs to.
        kind : Kind, optional
            What the job trains, by which like past runs are found.

        Raises
        ------
        DuplicateJob, InvalidSetting, NonFiniteLoss
            The job was not added. The predictor raises the last one if `target` is out of range.
        """
        self.jobs.refuse_duplicate(job)
        check_job_settings(weight, min_share, max_share, target, max_iter, latest)
        if reports:
            self._predictor.add(job, target=target, **self.remembering.kind_for_predictor(kind))
        self.jobs.add(
            job,
            owner,
            weight=weight,
            floor=min_share or 0.0,
            most=math.inf if max_share is None else max_share,
            latest=math.nan if latest is None else latest,
            target=math.nan if target is None else target,
            max_iter=math.inf if max_iter is None else max_iter,
            reports=reports,
            arrival=now,
        )
        if kind is not None and reports:
            self.remembering.add(job, kind)

    def remove_job(
        self, job: str, now: float, outcome: str | None = None, *, ended: float | None = None
    ) -> None:
        """Remove a job that ends.

        All about it is forgotten, except that the prior for other jobs keeps how it scaled, and
        the memory of past runs its run, if it has an outcome.

        Parameters
        ----------
        job : str
        now : float
            Seconds.
        outcome : {"done", "stopped", "failed"}, optional
            How it ended; None for a run that is not to be remembered.
        ended : float, optional
            Seconds since 1970, to order past runs by; `now` by default.

        Raises
        ------
        UnknownJob
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
            self._predictor.remove(job)
        self.jobs.remove(job)
        self.grants.position.pop(job, None)

    def set_kind(self, job: str, kind: Kind) -> None:
        """Set the kind of a running job, which may be known only when its training begins.

        Raises
        ------
        UnknownJob
        """
        self.remembering.set_kind(job, kind)

    def likeness(self, job: str) -> int:
        """Return the number of past runs on which the forecast of a job rests.

        Raises
        ------
        UnknownJob
        """
        return self.remembering.likeness(job)

    def report(self, job: str, loss: float, now: float) -> None:
        """Record the loss after the next iteration of a job. O(1).

        Parameters
        ----------
        job : str
            A job that was added with ``reports=True``.
        loss : float
            Finite, in raw units.
        now : float
            Seconds.

        Raises
        ------
        UnknownJob, NonFiniteLoss
        """
        row = self.jobs.row(job)
        self._predictor.report(job, loss)
        self.jobs.runtimes.end_iteration(row, self._since(now), float(loss))

    def observe_task(self, job: str, seconds: float, at_once: float = 1) -> None:
        """Charge a job for a finished task. O(1).

        Parameters
        ----------
        job : str
        seconds : float
            Compute time, in core-seconds; may be the sum over several tasks.
        at_once : float
            Number of tasks of the job that were ready or running with this one, itself included.
            Tasks that need no slot do not count.

        Raises
        ------
        UnknownJob
        """
        self.jobs.runtimes.observe_task(self.jobs.row(job), seconds, at_once)

    def observe_demand(self, job: str, tasks: float) -> None:
        """Record how many `tasks` of a job are ready or running now.

        Raises
        ------
        UnknownJob
        """
        self.jobs.table.column["demand"][self.jobs.row(job)] = tasks

    def observe_left(self, job: str, seconds: float) -> None:
        """Record the core-seconds that the submitted tasks of a job still take; nan if unknown.

        Raises
        ------
        UnknownJob
        """
        self.jobs.table.column["left"][self.jobs.row(job)] = seconds

    def observe_use(self, used: Mapping[str, float]) -> None:
        """Record what owners `used` lately, in core-seconds; those that used much yield.

        Without shares of owners it has no effect.
        """
        if self.owners is not None:
            self.owners.observe_use(used)

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Grants:
        """Decide the grants of all jobs until the next call.

        Parameters
        ----------
        workers : mapping of str to int
            Threads of each worker, by address.
        now : float
            Seconds.
        eligible : mapping of str to collection of str, optional
            Addresses of the workers that a job may use because they supply its resources, by job.
            Jobs that are not listed may use all workers.
        affinity : mapping of str to mapping of str to float, optional
            Bytes of each job's data on each worker.

        Returns
        -------
        Grants
            Mapping of str to `Grant` with the jobs whose grant changed. `grants` has all jobs.
        """
        seen = self._workers = Workers.of(workers, self._workers)
        elapsed, self._last = self._since(now), now
        before = self.grants
        self.grants = self._decisions.decide(seen, now, elapsed, eligible or {}, affinity or {})
        return self.grants.since(before)

    def next_thread(self) -> dict[str, float]:
        """Return the predicted fall of each job's normalized loss in an epoch by one more thread.

        It counts from the share of the last decision. Jobs without a forecast are left out.
        """
        return self._decisions.next_thread(self.grants)

    def end_of(self, job: str, now: float) -> dict[str, float] | None:
        """Return when a job ends, as of the last decision; None if its length is unknown.

        Returns
        -------
        dict of str to float
            Seconds from `now`: ``fair``, on a cluster that shares fairly; ``promised``, at the
            latest (inf without a promise); ``expected``, and the 80 % band ``low`` to ``high``;
            ``before``, what was promised when a fifth of its work was done (nan until then).
            ``threads`` are those of the cluster at that time.

        Raises
        ------
        UnknownJob
        """
        place, ends = self.grants.position.get(job), self._decisions.ends
        if place is None or ends is None or self._last is None:
            return None
        found = {name: float(each[place]) for name, each in ends._asdict().items()}
        if math.isnan(found["expected"]):
            return None
        column, row = self.jobs.table.column, self.jobs.row(job)
        found = {name: seconds - (now - self._last) for name, seconds in found.items()}
        found["before"] = column["end_promised"].item(row) - now
        return {**found, "threads": column["end_threads"].item(row)}

    def _since(self, now: float) -> float:
        """Return the seconds since the last reallocation, at least 0; 0 before the first one."""
        return 0.0 if self._last is None else max(now - self._last, 0.0)
