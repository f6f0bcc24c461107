"""Past runs in the engine of a scheduler, as long as it runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.memory import Kind, PastRun, PastRuns, PastStages, StagedRun, kind_of_name
from dask_slaq.core.safely import safely

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.memory import ExpectedStages
    from dask_slaq.core.recording import Recorder
    from dask_slaq.memory.store import RunStore

__all__ = ["MEMORY_TOPIC", "Memory"]

logger = logging.getLogger(__name__)

#: Topic of the events that tell which runs are safe on disk.
MEMORY_TOPIC = "slaq-memory"


@dataclass
class Following:
    """What is remembered of a running job."""

    kind: Kind  # with which it was opened: later ones are known too late for its first stage
    expected: ExpectedStages | None = None  # None until it is asked for


class _Runs(PastRuns):
    """Past runs of an engine. Those that end are passed on."""

    def __init__(self, keep: Callable[[PastRun], None]) -> None:
        super().__init__()
        self._keep = keep

    def add(self, run: PastRun) -> None:
        """Add a run that has ended."""
        super().add(run)
        self._keep(run)

    def recall(self, run: PastRun) -> None:
        """Add a run from the store."""
        super().add(run)


class Memory:
    """Past runs of the jobs on a scheduler, as long as it runs. It never raises.

    The engine of these jobs, which has `runs` as its memory, is asked for when it is needed.
    `FiledMemory` keeps all in a file: what is done for that alone does nothing here.

    Attributes
    ----------
    runs : PastRuns
        Memory of the engine.
    store : RunStore or None
    following : dict of str to Following
        What is remembered of each running job.
    broken : str or None
        The error that ended the memory.
    """

    def __init__(self, engine: Callable[[], Engine | Recorder]) -> None:
        self.broken: str | None = None
        self.runs = _Runs(self._keep)
        self._stages: PastStages | None = None
        self.store: RunStore | None = None
        self.following: dict[str, Following] = {}
        self._engine = engine

    @property
    def stages(self) -> PastStages:
        """Stages of past runs; made for the first of them."""
        if self._stages is None:
            self._stages = PastStages()
        return self._stages

    def fail(self, error: Exception) -> None:
        """End the memory, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            self.following.clear()
            logger.error("past runs are no longer remembered: %s", self.broken, exc_info=error)

    # Jobs

    @safely
    def begin(self, name: str, kind: Kind | None = None) -> None:
        """Follow a new job. `kind` is what its user stated."""
        self.following[name] = Following(kind or kind_of_name(name))

    @safely
    def set_kind(self, name: str, kind: Kind) -> None:
        """Set the `kind` of the job `name`, as soon as the runs of that kind are loaded."""
        if (job := self.following.get(name)) is None:
            return
        found = self._load(kind.name)
        if found is None or found.done():
            self._set_kind(name, job, kind)
        else:
            found.add_done_callback(lambda _: self._set_kind(name, job, kind))

    @safely
    def _set_kind(self, name: str, job: Following, kind: Kind) -> None:
        if self.following.get(name) is job:
            self._engine().set_kind(name, kind)

    @safely
    def begin_anew(self, name: str) -> None:
        """Make a job new, since its training begins again."""
        engine, now = self._engine(), monotonic()
        was, owner = engine.jobs[name], engine.jobs.owner[name]
        kind = engine.remembering.kinds.get(name) or kind_of_name(name)
        settings, paused = was.settings, was.paused
        engine.remove_job(name, now)
        engine.add_job(name, now, owner=owner, kind=kind, **settings)
        if paused:
            engine.pause(name)

    @safely
    def end(self, name: str, outcome: str | None, stages: Mapping[str, tuple[float, int]]) -> None:
        """Follow a job no longer, which is about to be removed from the engine.

        `stages` are the core-seconds and numbers of blocks of its stages, none for a job without.
        """
        job = self.following.pop(name, None)
        if job is not None and stages and outcome == "done":
            self._keep_stages(StagedRun(job.kind, stages, time()))

    def expected_stages(self, name: str) -> ExpectedStages:
        """Return what like runs let expect of the stages of a job, the same for its whole life."""
        job = self.following.get(name)
        if job is None or self.broken is not None or self._stages is None:
            return {}
        if job.expected is None:
            job.expected = self.stages.expected(job.kind)
        return job.expected

    def _keep_stages(self, staged: StagedRun) -> None:
        self.stages.add(staged)

    # What is done for a file

    def _keep(self, run: PastRun) -> None:
        """Store a run that has just been added to the memory of the engine."""

    def _load(self, kind: str) -> asyncio.Future[Any] | None:
        """Load the runs of a kind off the event loop, once. Returns None if it was loaded."""
        return None

    async def prepare(self, name: str, kind: Kind | None) -> None:
        """Read what is stored of a job that is about to begin, but do not wait for long.

        `kind` is what its user stated.
        """

    def judged(self) -> None:
        """Store how well the end of a job was foretold, if one was judged."""

    def keep_audit(self, event: dict[str, Any]) -> None:
        """Store an `event` of the audit."""

    def keep_ended(self, event: dict[str, Any]) -> None:
        """Store the last alert of a job."""

    def lately(self, since: float, then: Callable[[list[dict[str, Any]]], None]) -> None:
        """Call `then` with the last alerts of jobs that ended on earlier schedulers.

        They ended `since` a Unix time.
        """

    # What people look at

    def like_runs(self, name: str) -> int:
        """Return the number of like runs on which the forecast of a job rests."""
        with contextlib.suppress(Exception):
            return self._engine().likeness(name)
        return 0

    def kind_name(self, name: str) -> str | None:
        """Return the name of the kind of a job, None for unowned tasks."""
        kind = self._engine().remembering.kinds.get(name)
        return None if kind is None else kind.name

    def about(self) -> dict[str, Any]:
        """Return the state of the memory as plain values.

        They are ``file`` (None without one), ``runs`` (remembered in this process), ``stored``
        (safe on disk since the scheduler started) and ``failed`` (why nothing is stored any more).
        """
        return {"file": None, "runs": len(self.runs), "stored": 0, "failed": self.broken}

    async def all_ended(self, here: Iterable[dict[str, Any]], since: float) -> list[dict[str, Any]]:
        """Return the jobs that ended `since` a Unix time, `here` or on earlier schedulers."""
        return [each for each in here if each["ended"] >= since]

    async def audit(self, said: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the stored events of the audit, and those `said` that are not stored."""
        return list(said)

    # The end of the scheduler

    def stop(self) -> None:
        """Write what is known now, without waiting for it."""
        self.following.clear()

    async def close(self) -> None:
        """Write what is known now, when the scheduler closes."""
        self.stop()
