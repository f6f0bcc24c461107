"""The engine: reports and task times in, grants out.

Three rules. Time and workers come in as arguments; the engine asks no clock and does no I/O.
A refused call raises and leaves every job as it was. Nothing is fitted for a job without new
reports. The simulator and the scheduler plugin run this same class.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dask_slaq.core import quality, runtime
from dask_slaq.core.errors import DuplicateJob, InvalidSetting, UnknownJob
from dask_slaq.core.jobs import Grant, Job, check_job_settings
from dask_slaq.core.loss import Forecast, LossPredictor, Status
from dask_slaq.core.placement import place
from dask_slaq.core.policies import Snapshot
from dask_slaq.core.policies import policy as policy_named

FloatArray = npt.NDArray[np.float64]


class Predictor(Protocol):
    """What the engine asks of a loss predictor; see `LossPredictor`."""

    def add(self, job: str, *, target: float | None = None) -> None: ...
    def remove(self, job: str) -> None: ...
    def report(self, job: str, loss: float) -> None: ...
    def fit(self) -> int: ...
    def forecast(self, jobs: Sequence[str]) -> Forecast: ...


class Engine:
    """Predicts each job's loss reduction and allocates threads by policy.

    Parameters
    ----------
    policy : str
        Name of a policy, see `dask_slaq.core.policies.POLICIES`.
    epoch : float
        Seconds between two reallocations.
    normalizer : {"range", "largest-change"}
        Divisor of losses: the predicted whole range, or the paper's largest change so far.
    floor : float
        Credit floor: fraction in [0, 1] of its fair entitlement that every job keeps over time.
    predictor : Predictor, optional
        A `LossPredictor` unless given.

    Raises
    ------
    UnknownPolicy, InvalidSetting
    """

    def __init__(
        self,
        policy: str = "max-total",
        *,
        epoch: float = 1.0,
        normalizer: str = "range",
        floor: float = 0.5,
        predictor: Predictor | None = None,
    ) -> None:
        if not (epoch > 0 and math.isfinite(epoch)):
            raise InvalidSetting(f"epoch must be a positive number of seconds, not {epoch!r}")
        if not 0 <= floor <= 1:
            raise InvalidSetting(f"floor must be a fraction in [0, 1], not {floor!r}")
        if normalizer not in quality.NORMALIZERS:
            allowed = ", ".join(quality.NORMALIZERS)
            raise InvalidSetting(f"normalizer must be one of {allowed}, not {normalizer!r}")
        self.policy = policy_named(policy)
        self.epoch = epoch
        self.normalizer = normalizer
        self.floor = floor
        self.jobs: dict[str, Job] = {}
        self.grants: dict[str, Grant] = {}
        self._predictor: Predictor = LossPredictor() if predictor is None else predictor
        self._last: float | None = None

    def add_job(
        self,
        job: str,
        now: float,
        *,
        weight: float = 1.0,
        min_share: float | None = None,
        max_share: float | None = None,
        target: float | None = None,
        reports: bool = True,
    ) -> None:
        """Add a job that arrives at `now` (seconds).

        Raises
        ------
        DuplicateJob, InvalidSetting
            Nothing was added.
        """
        if job in self.jobs:
            raise DuplicateJob(
                f"a job named {job!r} is running already; names are unique on one scheduler"
            )
        check_job_settings(weight, min_share, max_share, target)
        if reports:
            self._predictor.add(job, target=target)
        self.jobs[job] = Job(weight, min_share, max_share, reports)

    def remove_job(self, job: str, now: float) -> None:
        """Forget a job and all that was learned of it.

        Raises
        ------
        UnknownJob
        """
        if self._job(job).reports:
            self._predictor.remove(job)
        del self.jobs[job]
        self.grants.pop(job, None)

    def report(self, job: str, loss: float, now: float) -> None:
        """Record the loss of the job's next iteration. O(1).

        Raises
        ------
        UnknownJob, NonFiniteLoss
        """
        state = self._job(job)
        self._predictor.report(job, loss)
        state.iteration += 1
        state.loss = float(loss)
        state.runtime.observe_iteration()

    def observe_task(self, job: str, seconds: float, at_once: int = 1) -> None:
        """Charge a finished task: compute `seconds`, and how many of the job's tasks that are
        worth a slot were ready or running `at_once`. O(1).

        Raises
        ------
        UnknownJob
        """
        self._job(job).runtime.observe_task(seconds, at_once)

    def observe_demand(self, job: str, tasks: int) -> None:
        """Set how many of the job's tasks are ready or running now.

        Raises
        ------
        UnknownJob
        """
        self._job(job).demand = tasks

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> dict[str, Grant]:
        """Decide what every job holds until the next epoch.

        Parameters
        ----------
        workers : Mapping of str to int
            Threads of each worker.
        now : float
            Seconds, on the caller's clock.
        eligible : Mapping of str to collection of str, optional
            Workers that a job may use at all (those that supply its resources); all by default.
        affinity : Mapping of str to Mapping of str to float, optional
            Bytes of each job's data on each worker.

        Returns
        -------
        dict of str to Grant
            The changes: jobs whose grant differs from the one before. All of them are in `grants`.
        """
        names = tuple(sorted(self.jobs))
        capacity = sum(workers.values())
        self._entitle(capacity, now)
        reported = [name for name in names if self.jobs[name].reports]
        self._predictor.fit()
        forecast = self._predictor.forecast(reported)
        snapshot = self._snapshot(names, forecast, workers, eligible or {})
        allocation = self.policy(snapshot)
        share = self._whole_waves(snapshot, allocation.share)
        sets = place(
            dict(zip(names, share.tolist(), strict=True)),
            workers,
            {name: grant.workers for name, grant in self.grants.items()},
            eligible=eligible,
            affinity=affinity,
        )
        gain = snapshot.gain(share)
        before, self.grants = self.grants, {}
        for i, name in enumerate(names):
            job = self.jobs[name]
            tokens = self._tokens(job, float(share[i]))
            self.grants[name] = Grant(
                share=float(share[i]),
                index=float(allocation.index[i]),
                workers=sets.get(name, {}),
                tokens=tokens,
                most=math.inf if job.max_share is None else job.max_share,
                iteration=job.iteration,
                loss=job.loss,
                normalized=float(snapshot.normalized[i]),
                predicted=float(gain[i]) if snapshot.known[i] else math.nan,
                why=self._why(job, bool(snapshot.known[i]), float(gain[i]), tokens),
            )
        return {name: grant for name, grant in self.grants.items() if before.get(name) != grant}

    def _job(self, job: str) -> Job:
        try:
            return self.jobs[job]
        except KeyError:
            running = ", ".join(map(repr, sorted(self.jobs))) or "none"
            raise UnknownJob(f"no job named {job!r} is running; running are: {running}") from None

    def _snapshot(
        self,
        names: tuple[str, ...],
        forecast: Forecast,
        workers: Mapping[str, int],
        eligible: Mapping[str, Collection[str]],
    ) -> Snapshot:
        """What the policy is to see; `forecast` has the reporting jobs in the order of `names`."""
        jobs = [self.jobs[name] for name in names]
        capacity = sum(workers.values())
        row = np.flatnonzero([job.reports for job in jobs])
        n = len(names)
        work = np.array([job.runtime.work for job in jobs], float)
        width = np.array([job.runtime.width for job in jobs], float)
        weight = np.array([job.weight for job in jobs], float)
        normalized = np.ones(n)
        normalized[row] = quality.normalized(forecast, self.normalizer)
        known = np.zeros(n, bool)
        known[row] = (forecast.status != Status.TOO_FEW_REPORTS) & (work[row] > 0)
        reduction = forecast.reduction / quality.scale(forecast, self.normalizer)[:, None]

        def gain(threads: FloatArray) -> FloatArray:
            ahead = runtime.iterations(work, width, np.asarray(threads, float), self.epoch)
            out = np.zeros(n)
            out[row] = interpolate(forecast.horizons, reduction, ahead[row])
            return out

        cap = np.array(
            [
                min(
                    available(workers, eligible.get(name)),
                    capacity if job.max_share is None else job.max_share,
                    useful(job, capacity),
                )
                for name, job in zip(names, jobs, strict=True)
            ],
            float,
        )
        floor = np.array([job.min_share or 0.0 for job in jobs], float)
        return Snapshot(
            jobs=names,
            capacity=capacity,
            weight=weight,
            floor=np.minimum(floor, cap),
            cap=cap,
            known=known,
            normalized=normalized,
            gain=gain,
            reporting=np.array([job.reports for job in jobs], bool),
        )

    def _whole_waves(self, snapshot: Snapshot, share: FloatArray) -> FloatArray:
        """Trim whole-thread shares to the fewest threads with as many waves: those between two
        wave counts buy nothing, and are lent instead; but not below a floor."""
        width = np.array([self.jobs[name].runtime.width for name in snapshot.jobs], float)
        fewest = np.maximum(np.ceil(width / runtime.waves(width, share)), snapshot.floor)
        return np.where((share >= 1) & snapshot.known, np.minimum(share, fewest), share)

    def _entitle(self, capacity: int, now: float) -> None:
        """Credit each job that has work with its fair share of the time since the last call."""
        elapsed = 0.0 if self._last is None else max(now - self._last, 0.0)
        self._last = now
        busy = [job for job in self.jobs.values() if job.demand]
        total = sum(job.weight for job in busy)
        for job in busy:
            fair = min(capacity * job.weight / total, float(job.demand))
            job.entitled += fair * elapsed

    def _tokens(self, job: Job, share: float) -> float:
        """Core-seconds to serve before any index: what the job is behind its credit floor, and an
        epoch of its floor in threads. What never reports comes last, so its share is its floor."""
        floor = (job.min_share or 0.0) if job.reports else share
        behind = self.floor * job.entitled - job.runtime.attained
        return max(behind, floor * self.epoch, 0.0)

    def _why(self, job: Job, known: bool, gain: float, tokens: float) -> str:
        if not job.reports:
            reason = "reports no loss: fair share"
        elif self.policy.name in ("none", "fair"):
            reason = "equal shares by weight"
        elif not known:
            reason = "too few reports to predict: explored"
        else:
            reason = f"predicted to lower its normalized loss by {gain:.2g} in {self.epoch:g} s"
        return reason + (f"; {tokens:.2g} core-seconds behind its floor" if tokens > 0 else "")


def available(workers: Mapping[str, int], eligible: Collection[str] | None) -> int:
    """Threads of the workers that a job may use."""
    return sum(workers.values() if eligible is None else (workers.get(w, 0) for w in eligible))


def useful(job: Job, capacity: int) -> float:
    """Threads beyond which a job gains nothing: the parallel tasks of its iterations."""
    return float(capacity) if job.runtime.work == 0 else max(job.runtime.width, 1.0)


def interpolate(x: FloatArray, y: FloatArray, at: FloatArray) -> FloatArray:
    """Each row of `y` (n, n_x) over the common grid `x`, linearly, at one point a row."""
    at = np.minimum(at, x[-1])
    right = np.clip(np.searchsorted(x, at, side="left"), 1, len(x) - 1)
    left = right - 1
    row = np.arange(len(at))
    fraction = (at - x[left]) / (x[right] - x[left])
    low = y[row, left]
    return np.asarray(low + fraction * (y[row, right] - low))
