"""Recorder of all calls to an engine and all its decisions, as events that can be replayed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol

from dask_slaq.core.engine import Engine
from dask_slaq.core.grants import Grant, Grants
from dask_slaq.core.memory import Kind
from dask_slaq.core.owners import OwnerTerms
from dask_slaq.core.policies import Policy
from dask_slaq.core.recording.events import VERSION, Event
from dask_slaq.core.recording.recalled import RunNumbers, kind_to_dict
from dask_slaq.core.reports import as_loss, is_usable

__all__ = ["Recorder"]


class Measurements(Protocol):
    """Measurements of tasks that a recording includes but that do not affect decisions."""

    def add(self, job: str, now: float) -> None:
        """Begin to measure a job. `now` is in seconds on the clock of the recorder."""
        ...

    def remove(self, job: str, now: float) -> None:
        """Forget a job that ends."""
        ...

    def idle(self, job: str, now: float) -> float:
        """Return the seconds since the last call in which a job had no task ready or running."""
        ...

    def offered(self, threads: int, now: float) -> float:
        """Return the thread-seconds since the last call for which there were tasks.

        `threads` are those of all workers.
        """
        ...


class Recorder:
    """Engine that records every call and decision. Other attributes are those of the engine.

    `write` gets each event after it happened; calls that raise are not recorded. The engine must
    have no jobs yet. Measurements are optional, and `about` goes into the first event.

    Task times are summed up per job. The sum is passed to the engine at the job's next report, at
    the next decision or at the job's end, so that a replay computes with the same floats.
    """

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Event], object],
        now: float,
        measurements: Measurements | None = None,
        **about: Any,
    ) -> None:
        self.engine = engine
        self._measurements = measurements
        self._write = write
        self._tasks: dict[str, tuple[int, float, float]] = {}
        self._demand: dict[str, float] = {}
        self._left: dict[str, tuple[float | None, bool]] = {}
        self._after: dict[str, float | None] = {}
        self._used: dict[str, float] = {}
        self._workers: dict[str, int] = {}
        self._eligible: dict[str, list[str]] = {}
        self._affinity: dict[str, dict[str, float]] = {}
        self._runs = RunNumbers(write)
        kind = type(engine._predictor)
        owners: Event = {}
        if engine.owners is not None:
            owners["owners"] = {name: _terms(terms) for name, terms in engine.owners.terms.items()}
        self._say(
            "start",
            time=now,
            version=VERSION,
            policy=engine.policy.name,
            epoch=engine.epoch,
            normalizer=engine.normalizer,
            floor=engine.floor,
            latest=_finite(engine.latest),
            strict=engine.strict,
            move_pause=engine.move_pause,
            **owners,
            predictor=f"{kind.__module__}.{kind.__qualname__}",
            **about,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def add_job(self, job: str, now: float, *, kind: Kind | None = None, **settings: Any) -> None:
        """Add a job and record it. See `Engine.add_job`."""
        remembered = {} if kind is None else self._about(kind)
        self.engine.add_job(job, now, kind=kind, **settings)
        if self._measurements is not None:
            self._measurements.add(job, now)
        added, owner = self.engine.jobs[job], self.engine.jobs.owner[job]
        search = self.engine.jobs.search.get(job)
        self._say(
            "arrive",
            time=now,
            job=job,
            reports=added.reports,
            **self._settings(job),
            **({"owner": owner} if owner else {}),
            **({"search": search} if search else {}),
            **remembered,
        )
        if added.max_iter is not None:
            self._say("max_iter", job=job, max_iter=added.max_iter)

    def remove_job(
        self, job: str, now: float, outcome: str | None = None, *, ended: float | None = None
    ) -> None:
        """Remove a job and record it. See `Engine.remove_job`."""
        self.engine.jobs.row(job)
        self._catch_up(job)
        self.engine.remove_job(job, now, outcome, ended=ended)
        self._demand.pop(job, None)
        self._left.pop(job, None)
        self._after.pop(job, None)
        if self._measurements is not None:
            self._measurements.remove(job, now)
        self._say("leave", time=now, job=job, **({} if outcome is None else {"outcome": outcome}))

    def set_kind(self, job: str, kind: Kind) -> None:
        """Set the kind of a running job and record it. See `Engine.set_kind`."""
        self.engine.jobs.row(job)
        about = self._about(kind)
        self.engine.set_kind(job, kind)
        self._say("kind", job=job, **about)

    def report(self, job: str, loss: float, now: float, step: int | None = None) -> None:
        """Report a loss and record it. See `Engine.report`."""
        self.engine.jobs.row(job)
        loss = as_loss(loss)
        self._catch_up(job)
        self.engine.report(job, loss, now, step)
        known: Event = {} if step is None else {"step": step}
        if self._measurements is not None:
            known["idle"] = self._measurements.idle(job, now)
        self._say("report", time=now, job=job, loss=loss if is_usable(loss) else None, **known)

    def observe_task(self, job: str, seconds: float, at_once: float = 1) -> None:
        """Add a task to the sum that is passed to the engine later. See `Engine.observe_task`."""
        self.engine.jobs.row(job)
        count, total, most = self._tasks.get(job, (0, 0.0, 0.0))
        self._tasks[job] = count + 1, total + float(seconds), max(most, float(at_once))

    def observe_demand(self, job: str, tasks: float) -> None:
        """Pass on the demand of a job and record it if it changed. See `Engine.observe_demand`."""
        self.engine.observe_demand(job, tasks)
        if self._demand.get(job, 0) != tasks:
            self._demand[job] = tasks
            self._say("demand", job=job, tasks=float(tasks))

    def observe_left(self, job: str, seconds: float, *, more: bool = False) -> None:
        """Pass on the work left of a job and record it if it changed. See `Engine.observe_left`."""
        self.engine.observe_left(job, seconds, more=more)
        known = None if math.isnan(seconds) else float(seconds)
        if self._left.get(job, (None, False)) != (known, more):
            self._left[job] = known, more
            self._say("left", job=job, seconds=known, **({"more": True} if more else {}))

    def observe_after(self, job: str, seconds: float) -> None:
        """Pass on what comes after a stage and record it if it changed. See `Engine`."""
        self.engine.observe_after(job, seconds)
        known = None if math.isnan(seconds) else float(seconds)
        if self._after.get(job) != known:
            self._after[job] = known
            self._say("after", job=job, seconds=known)

    def observe_use(self, used: Mapping[str, float]) -> None:
        """Pass on what owners `used` lately and record it. See `Engine.observe_use`."""
        known = {owner: float(seconds) for owner, seconds in used.items()}
        self.engine.observe_use(known)
        if known != self._used:
            self._used = known
            self._say("use", used=known)

    def set_spare(self, owners: Collection[str]) -> None:
        """Let owners run on what is spare and record it if it changed. See `Engine.set_spare`."""
        if self.engine.set_spare(owners):
            self._say("spare", owners=sorted(owners))

    def set_reserved(self, threads: Mapping[str, float]) -> None:
        """Reserve threads for owners and record it if it changed. See `Engine.set_reserved`."""
        known = {owner: float(each) for owner, each in threads.items()}
        if self.engine.set_reserved(known):
            self._say("reserved", threads=known)

    def set_floor(self, job: str, threads: float) -> None:
        """Set the floor of a job and record it if it changed. See `Engine.set_floor`."""
        if self.engine.set_floor(job, threads):
            self._say("floor", job=job, threads=float(threads))

    def set_max_iter(self, job: str, max_iter: int | None) -> None:
        """Set a job's last iteration and record it if it changed. See `Engine.set_max_iter`."""
        if self.engine.set_max_iter(job, max_iter):
            self._say("max_iter", job=job, max_iter=None if max_iter is None else float(max_iter))

    def set_job(self, job: str, **settings: float | None) -> None:
        """Change settings of a job and record them. See `Engine.set_job`."""
        self.engine.set_job(job, **settings)
        self._say("set", job=job, **self._settings(job))

    def pause(self, job: str, paused: bool = True) -> None:
        """Pause or resume a job and record it. See `Engine.pause`."""
        self.engine.pause(job, paused)
        self._say("pause", job=job, paused=bool(paused))

    def set_policy(self, policy: str | Policy) -> None:
        """Change the policy and record it. See `Engine.set_policy`."""
        self.engine.set_policy(policy)
        self._say("policy", policy=self.engine.policy.name)

    def set_owner(self, owner: str, terms: OwnerTerms) -> None:
        """Set the terms of an owner and record them. See `Engine.set_owner`."""
        self.engine.set_owner(owner, terms)
        self._say("owner", owner=owner, terms=_terms(terms))

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Grants:
        """Decide the grants and record the changes. See `Engine.reallocate`."""
        self._catch_up(*self._tasks)
        changes = self.engine.reallocate(workers, now, eligible=eligible, affinity=affinity)
        self._say(
            "decide",
            time=now,
            threads=sum(workers.values()),
            **self._changed(workers, now, eligible or {}, affinity or {}),
            grants={job: grant_to_dict(grant) for job, grant in changes.items()},
        )
        return changes

    def _say(self, event: str, **what: Any) -> None:
        self._write({"event": event, **what})

    def _about(self, kind: Kind) -> Event:
        """Return the fields that record a kind, after the past runs that are like it."""
        like = self._runs.of(self.engine.remembering.memory, kind)
        return {"kind": kind_to_dict(kind), "like": like}

    def _settings(self, job: str) -> Event:
        now = self.engine.jobs[job]
        names = ("weight", "min_share", "max_share", "target")
        found = {name: getattr(now, name) for name in names}
        return found if now.latest is None else {**found, "latest": _finite(now.latest)}

    def _catch_up(self, *jobs: str) -> None:
        """Pass the summed task times of `jobs` to the engine and record them."""
        for job in jobs:
            if ended := self._tasks.pop(job, None):
                count, seconds, at_once = ended
                self.engine.observe_task(job, seconds, at_once)
                self._say("tasks", job=job, count=count, seconds=seconds, at_once=at_once)

    def _changed(
        self,
        workers: Mapping[str, int],
        now: float,
        eligible: Mapping[str, Collection[str]],
        affinity: Mapping[str, Mapping[str, float]],
    ) -> Event:
        """Return the arguments that differ from the last decision, and the time offered since."""
        changed: Event = {}
        if self._measurements is not None:
            changed["offered"] = self._measurements.offered(sum(workers.values()), now)
        if workers != self._workers:
            changed["workers"] = self._workers = dict(sorted(workers.items()))
        may_use = {job: sorted(addresses) for job, addresses in eligible.items()}
        if may_use != self._eligible:
            changed["eligible"] = self._eligible = may_use
        held = {job: dict(on) for job, on in affinity.items() if on}
        news = {job: on for job, on in held.items() if self._affinity.get(job) != on}
        news.update({job: {} for job in self._affinity if job not in held})
        if news:
            changed["affinity"] = news
        self._affinity = held
        return changed


def _finite(value: float) -> float | None:
    return None if value == math.inf else float(value)


def _terms(terms: OwnerTerms) -> list[float | None]:
    return [terms.weight, _finite(terms.max_threads)]


def grant_to_dict(grant: Grant) -> Event:
    """Return the fields of a grant that are recorded."""
    return {
        "share": grant.share,
        "index": grant.index,
        "tokens": grant.tokens,
        "workers": dict(grant.workers),
    }
