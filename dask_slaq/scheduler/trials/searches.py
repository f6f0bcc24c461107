"""Searches on one scheduler: trials report, and wait while others of their worker train.

Workers follow the last `Turns` that they were sent, by themselves. They are sent some at least
every `BEAT` seconds, and let all trials train when they hear nothing for longer. So whatever fails
here, nothing stays waiting.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from operator import itemgetter
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask.utils import key_split
from distributed.protocol import pickle
from tornado.ioloop import PeriodicCallback

from dask_slaq.core.dispatch import TaskKind
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.fairly import oldest_of_most
from dask_slaq.core.search_settings import no_search, search_is_over
from dask_slaq.core.settings import SILENT, is_whole, shown
from dask_slaq.core.task_reports import MOST_METRICS
from dask_slaq.core.text import printable
from dask_slaq.core.trials import (
    EndedSearches,
    Events,
    Places,
    SearchSettings,
    Trial,
    Trials,
    decide,
    row_of,
)
from dask_slaq.scheduler.event_loop import Soon
from dask_slaq.scheduler.trials.desks import Desks
from dask_slaq.scheduler.trials.kept import Kept, KeptSearches
from dask_slaq.scheduler.trials.rooms import Rooms
from dask_slaq.scheduler.trials.running import RunningSearch
from dask_slaq.scheduler.trials.silence import SilentTrials
from dask_slaq.scheduler.trials.states import States, remove_files
from dask_slaq.scheduler.trials.suspects import Suspects

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.scheduler.pools import Pool, TaskTracker

__all__ = ["Searches"]

#: Seconds between two messages to a worker on which trials wait.
BEAT = 0.5
#: Minimum pause after a choice in seconds, and in seconds per second that the choice took.
PAUSE, PAUSE_PER_SECOND = 0.005, 4.0
#: What Dask tells of a client just before it drops what the client wants, and of a worker.
LEAVES, DIES = "remove-client", "remove-worker"
#: Number of searches that are known by their names.
NAMED = 100
#: Tasks of one name that have ended without a report, of which the client is told at once.
FEW = 3
#: Number of searches whose events may wait to be read.
FOLLOWED = 50
#: Number of interrupted searches that are remembered.
INTERRUPTED = 20


class Searches:
    """Searches of one scheduler.

    `report` records the loss of a job, `stop` asks one to stop, `stopping` has those that were,
    `tell` sends an alert of a job, once per kind, and `enter` calls what the event loop has to do:
    after an error in that, nothing is active.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: Engine | Recorder,
        pools: Mapping[str, Pool],
        tracker: TaskTracker,
        *,
        report: Callable[..., None],
        stopping: Collection[str],
        stop: Callable[[str], None],
        end_job: Callable[[str, str | None], None],
        is_active: Callable[[], bool],
        let_move: Callable[[bool], None],
        tell_client: Callable[..., None],
        tell: Callable[[str, str, str], object],
        enter: Callable[..., Any],
    ) -> None:
        self._scheduler, self._engine = scheduler, engine
        self._pools, self._tracker = pools, tracker
        self._report, self._stopping, self._stop = report, stopping, stop
        self._end_job = end_job
        self._is_active, self._enter = is_active, enter
        self.running: dict[str, RunningSearch] = {}
        self._with_job: dict[str, RunningSearch] = {}  # searches whose models are jobs, by these
        self.draining: Collection[str] = ()  # workers that are to be closed: models leave them
        self.ended = EndedSearches()
        self._let_move, self._tell_client = let_move, tell_client
        self.kept = KeptSearches(scheduler, self._end_kept, enter)
        self.silence = SilentTrials(scheduler, lambda name, message: tell(name, "silent", message))
        self.states = States(
            scheduler, lambda ts, names: tracker.control.annotate(ts, "slaq_state", names)
        )
        self._to_send: list[tuple[RunningSearch, Any, str]] = []  # models that go on, and where
        decide_soon = partial(enter, self._decide_if_active)
        self._beat = PeriodicCallback(decide_soon, BEAT * 1000)
        self._soon = Soon(decide_soon, PAUSE_PER_SECOND, least=PAUSE, delay=PAUSE)
        self._decided = 0.0
        self.desks = Desks(scheduler)
        self.rooms = Rooms(scheduler, pools, tracker, self.running)
        self.suspects = Suspects(scheduler, tracker, self.running, partial(let_move, True))
        # Trials and blocks of searches whose block an exception left, by client and name, the last
        # ones. A search goes on in the next block of its name.
        self._interrupted: OrderedDict[tuple[str, str], tuple[Trials, list[str]]] = OrderedDict()
        # Last block and settings of each search, by name, the last ones.
        self._named: OrderedDict[str, tuple[str, SearchSettings]] = OrderedDict()
        # Events of searches that clients follow, by block, until these have read the last one.
        self._events: OrderedDict[str, Events] = OrderedDict()

    # Coming and going

    def begin(
        self,
        name: str,
        run: str,
        settings: SearchSettings,
        *,
        owner: str = "",
        kept: Kept | None = None,
        followed: bool = False,
    ) -> None:
        """Begin a search whose job was opened; `run` is the identifier of its block.

        If it is `followed`, its client reads what happens by `read_events`. After an earlier block
        of its name that an exception left, its models are known; so are those of a search that has
        ended and was `kept`.
        """
        search = self.running[name] = RunningSearch(self._pools[name], run, settings)
        if kept is not None:
            ended = kept.search
            self._interrupted[search.pool.client, name] = ended.trials, ended.runs
            self.kept.hand_over(kept, search)
        elif settings.keep is not None:
            self.kept.begin(search, owner, settings.keep)
        self.rooms.see_workers()
        if (before := self._interrupted.pop((search.pool.client, name), None)) is not None:
            trials, runs = before
            search.runs += runs
            if trials.settings.maximize == settings.maximize:
                self._end_lost(trials)
                search.trials, trials.settings = trials, settings
                search.inherited = {trial.key for trial in trials}
        self._follow(search, followed)
        search.before, _ = self._named.get(name, ("", None))
        self._named[name] = run, settings
        self._named.move_to_end(name)
        while len(self._named) > NAMED:
            self._named.popitem(last=False)
        self._beat.start()

    def _end_lost(self, trials: Trials) -> None:
        """End the trials whose tasks have ended after the block was left; drop unwanted ones."""
        keys: set[Any] = {trial.key for trial in trials}
        for key in keys:
            if not self._is_wanted(key):
                trials.drop(key)
            elif (state := self._scheduler.tasks[key].state) != "processing":
                trials.end(key, _OUTCOMES.get(state, ""))

    def around(self, name: str | None, owner: str) -> RunningSearch | None:
        """Return the search of an `owner` in whose block, that of `name`, a job is opened."""
        search = None if name is None else self.running.get(name)
        return search if search is not None and search.pool.owner == owner else None

    def begin_job(self, name: str, search: RunningSearch, params: Mapping[str, Any]) -> None:
        """Follow a job that is a model of a search: one that computes with many tasks."""
        self._with_job[name] = search
        search.jobs[name] = trial = search.trials.at(name, "")
        trial.params = params

    def job_reported(self, name: str, loss: float, step: int, *, anew: bool = False) -> None:
        """Follow the report of a job, which was for the iteration `step`, or begins it `anew`."""
        search = self._with_job.get(name)
        if search is None or self.running.get(search.pool.name) is not search:
            return
        trials = search.trials
        trial = search.jobs[name] = trials.at(name, "", anew=anew)
        sign = -1.0 if trials.settings.maximize else 1.0
        seconds = self._engine.jobs[name].runtime.attained - trial.computed
        (more,) = trials.report(trial, [sign * loss], max(seconds, 0.0), [step])
        iteration = self._engine.jobs[search.pool.name].iteration + more
        self._report(search.pool.name, trials.best, step=iteration)

    def end_model(self, name: str, outcome: str | None) -> None:
        """Follow the end of a job. The search ends with the last of its models."""
        if (search := self._with_job.pop(name, None)) is None:
            return
        del search.jobs[name]
        search.trials.end(name, outcome or "")
        if search.outcome is not None:
            self._later(self._end_if_over, search)

    def jobs_of(self, name: str) -> list[str]:
        """Return the jobs that are models of a search, and run; none of another job."""
        search = self.running.get(name)
        return [] if search is None else list(search.jobs)

    def goes_on(self, name: str) -> bool:
        """Return whether a search whose client has left goes on; it ends with its last task."""
        search = self.running.get(name)
        kept = None if search is None else self.kept.of(search)
        if search is None or kept is None or not self._is_active():
            return False
        if kept.gone is None:
            return False
        search.outcome = search.outcome or "done"
        return search.goes_on

    def is_left(self, kept: Kept) -> bool:
        """Return whether a search runs that is kept, and nobody is in its block."""
        search = kept.search
        return self.running.get(kept.name) is search and search.outcome is not None

    def hand_over(
        self, kept: Kept, run: str, settings: SearchSettings, followed: bool = False
    ) -> None:
        """Let a running search go on in another block, which is of another client now."""
        search = kept.search
        search.run, search.runs, search.outcome = run, [run, *search.runs], None
        search.marked = 0
        if search.trials.settings.maximize == settings.maximize:
            search.trials.settings = settings
        self.kept.hand_over(kept, search)
        self._follow(search, followed)
        self._soon.ask()

    def _end_kept(self, name: str) -> None:
        """End a search whose driver was gone for too long."""
        if (search := self.running.get(name)) is not None and search.outcome is not None:
            self._end_job(name, None)

    def forget_client(self, client: str) -> None:
        """Forget what a client has interrupted: it has left."""
        for known in [known for known in self._interrupted if known[0] == client]:
            del self._interrupted[known]

    def submitted(self, client: str, keys: Collection[Any]) -> None:
        """Follow a graph of a client: some tasks may be known to others, or have ended before.

        A cell of a notebook that is run again submits the same tasks, and nothing is computed. So
        does whoever calls the same function with the same arguments. The annotations of such tasks
        are those of their first submission.
        """
        self._soon.ask()  # a model that others want is not given up
        search = self._block_of(client)
        if search is None:
            return
        ended = []
        for key in keys:
            ts: TaskState = self._scheduler.tasks[key]
            if ts.run_spec is None or key in search.trials.alive or search.trials.has_ended(key):
                continue
            if ts.state not in _OUTCOMES and self._tracker.owner.get(key) is search.pool:
                continue
            run = (ts.annotations or {}).get("slaq_search", "")
            if ts.state != "released" and run not in search.runs:
                search.elsewhere[key] = run if isinstance(run, str) else ""
                if ts.state in _OUTCOMES:
                    ended.append(key)
        self._take_over(search, ended)

    def _block_of(self, client: str) -> RunningSearch | None:
        """Return the search of a client in whose block its last graph was submitted, if any was."""
        latest = next(reversed(self._scheduler.computations), None)
        about = {} if latest is None else latest.annotations
        block = about.get("slaq_search"), about.get("slaq_job"), client  # a job in it has its own
        some = (search for search in self.running.values() if search.outcome is None)
        return next((s for s in some if (s.run, s.pool.name, s.pool.client) == block), None)

    def _rows_of(
        self, search: RunningSearch, keys: Collection[Any]
    ) -> dict[Any, list[dict[str, Any]]]:
        """Return rows of models that train elsewhere, with curves, as far as they are known."""
        found: dict[Any, list[dict[str, Any]]] = {}
        if not (some := set(keys)):
            return found
        for run in {*(search.elsewhere[key] for key in some), search.before} - {""}:
            for other in self.running.values():
                if run in other.runs and other is not search:
                    rows = other.trials.as_dicts(curves=True, only=some)
                    break
            else:
                rows = [row for row in self.ended.get(run) if row["key"] in some]
            mine: dict[Any, list[dict[str, Any]]] = {}
            for row in rows:
                mine.setdefault(row["key"], []).append(row)
            found = {**mine, **found} if run == search.before else {**found, **mine}
        return found

    def _take_over(self, search: RunningSearch, keys: Collection[Any]) -> None:
        """Know models that were trained elsewhere, and have ended."""
        rows = self._rows_of(search, keys)
        for key in keys:
            run = search.elsewhere.pop(key)
            state = _OUTCOMES[self._scheduler.tasks[key].state]
            for row in rows.get(key, ()):
                over = row["state"] in ENDS_OF_TRIALS
                search.trials.restore(row if over else {**row, "state": state, "ended": time()})
            if key not in rows:
                search.unknown[key] = run

    def _ended_elsewhere(self, search: RunningSearch, key: Any) -> None:
        """Follow the end of a model that others have trained."""
        ts, name = self._scheduler.tasks.get(key), search.pool.name
        if self.running.get(name) is not search or key not in search.elsewhere:
            return
        outcome = "" if ts is None else _OUTCOMES.get(ts.state, "")
        if outcome and ts is not None and key in search.trials.alive:
            search.trials.end(key, outcome, str(ts.exception_text or ""))
            del search.elsewhere[key]
        elif outcome:
            self._take_over(search, [key])
        elif ts is None or not ts.who_wants:
            search.trials.drop(key)
            del search.elsewhere[key]
        if search.outcome is not None:
            self._end_if_over(search)

    def claim(self, name: str, ts: TaskState) -> None:
        """Follow a task of an earlier block of this name; it may be on a worker already."""
        search = self.running.get(name)
        if search is None:
            return
        search.inherited.add(ts.key)
        if ts.processing_on is not None:
            if ts.key not in search.trials.alive:
                search.begun[ts.key] = ts
            self._soon.ask()

    def leave(self, name: str, outcome: str) -> None:
        """Record that a search's block was left: it ends with its last task.

        With the outcome ``"failed"`` and not ``"done"`` it ends at once.
        """
        search = self.running.get(name)
        if search is not None and outcome == "failed" and (kept := self.kept.of(search)):
            self.kept.leave(kept, failed=True)
            outcome = "done"
        if search is not None:
            search.outcome = outcome
            if outcome == "done":
                self._warn_of_unknown(name, search)
        if search is None or outcome == "failed" or not search.goes_on:
            self._end_job(name, outcome)

    def _warn_of_unknown(self, name: str, search: RunningSearch) -> None:
        """Tell the client that no task was submitted, or of which ones nothing can be known."""
        models = {_name_of(trial.key) for trial in search.trials}
        is_empty = not (search.pool.tasks or search.pool.ended or models)
        known: Mapping[Any, TaskState] = self._scheduler.tasks
        some = [key for key, run in search.unknown.items() if is_empty or not run]
        some += [key for key, run in search.elsewhere.items() if not run]
        kinds = [_name_of(key) for key in some if not _is_input(known.get(key))]
        if some := [kind for kind in kinds if not models or kind in models]:
            about = {"tasks": some[0], "n": len(some)}
            self._tell_client(name, SILENT, job=name, why="known", **about)
        elif is_empty and not search.elsewhere:
            self._tell_client(name, SILENT, job=name, why="empty")

    def mark(self, name: str, number: int) -> None:
        """Record that what its client had submitted before the mark of this number is known."""
        if (search := self.running.get(name)) is not None:
            search.marked = number

    def has_mark(self, run: str, number: Any) -> bool:
        """Return whether a running search has a mark, if one is asked for."""
        search = next((s for s in self.running.values() if s.run == run), None)
        return search is None or not is_whole(number, 1) or search.marked >= number

    def is_open(self, run: str) -> bool:
        """Return whether the block `run` of a search was not left yet."""
        return any(s.run == run and s.outcome is None for s in self.running.values())

    def end(self, name: str) -> None:
        """Forget a search whose job ends, and let its trials train on."""
        search = self.running.pop(name, None)
        if search is None:
            return
        if search.outcome == "done":
            self._warn_of_silence(name, search, least=1)
        self.kept.end(search)
        self.ended.add(search.run, search.trials.as_dicts(curves=True))
        if search.outcome == "failed" and search.pool.tasks:
            self._interrupted[search.pool.client, name] = search.trials, search.runs
            while len(self._interrupted) > INTERRUPTED:
                del self._interrupted[oldest_of_most(self._interrupted, itemgetter(0))]
        search.trials.follow(None)
        folder = search.trials.settings.states
        ends = {trial.outcome for trial in search.trials.ended}
        if (
            folder
            and search.outcome == "done"
            and not (search.trials.alive or search.cut_off or ends - {"done", "pruned"})
        ):
            asyncio.get_running_loop().run_in_executor(None, remove_files, folder)
        self._leave_to_dask(search)
        self._release(search)
        self.states.unpin(search.trained_on)
        self._decide()
        if not self.running:
            self._beat.stop()
            self._later(self._stay)
            self.desks.clear()
            self.rooms.clear()

    def release_all(self) -> None:
        """Let all trials train on, and make no further choice."""
        self._beat.stop()
        self.desks.tell({})
        self._later(self._let_move, False)
        for name, search in self.running.items():
            self.ended.add(search.run, search.trials.as_dicts(curves=True))
            search.trials.follow(None)
            self._later(self.states.unpin, search.trained_on)
            self._later(self._leave_to_dask, search)
            if search.outcome is not None:  # nobody else will end its job
                self._later(self._end_job, name, search.outcome)
        self.running.clear()
        self._with_job.clear()
        self._interrupted.clear()
        self.kept.forget_all()

    def _leave_to_dask(self, search: RunningSearch) -> None:
        """Count its trials as Dask does: for good as seceded, once they have seceded.

        Otherwise tasks that they submit and wait for might find no worker.
        """
        alive: list[Any] = list(search.trials.alive)
        for key in alive:
            ts = self._scheduler.tasks.get(key)
            if ts is not None and key in self._tracker.seceded_at:
                self._tracker.rested(ts)

    def _stay(self) -> None:
        if not self.running:
            self._let_move(False)

    def _release(self, search: RunningSearch) -> None:
        """Leave models that have left their worker to Dask, soon: this may be in a transition."""
        some = [ts for ts in self._tracker.away.values() if ts in search.pool.tasks]
        if some:
            self._later(self._tracker.leave_to_dask, some)

    def _follow(self, search: RunningSearch, followed: bool) -> None:
        """Keep what happens in a search for its client, if that follows it."""
        events = Events() if followed else None
        search.trials.follow(events, search.runs[-1])
        if events is not None:
            self._events[search.run] = events
            while len(self._events) > FOLLOWED:
                # Of programs that are gone, most likely.
                over = (run for run, some in self._events.items() if some.over)
                self._events.pop(next(over, next(iter(self._events))))

    def read_events(self, run: str, after: int) -> dict[str, Any]:
        """Return what happened in a search that is followed; see `Events.read`."""
        events = self._events.get(run)
        if events is None:
            return {"events": [], "after": after, "dropped": 0, "over": True}
        if events.over:
            del self._events[run]
        return events.read(after)

    def trials(self, run: str, *, curves: bool = False) -> list[dict[str, Any]]:
        """Return the trials of a search that runs or ended lately, as of `Trials.as_dicts`."""
        for search in self.running.values():
            if search.run == run:
                known = search.trials.as_dicts(curves=curves)
                seen = {trial["key"] for trial in known}
                there = self._rows_of(search, search.elsewhere)
                known += [row for rows in there.values() for row in rows]
                seen |= there.keys()
                tasks = search.pool.unfinished - search.pool.inner
                rest = [ts.key for ts in tasks if ts.key not in seen]
                rest += [key for key in search.elsewhere if key not in seen]
                known = known if curves else _without_curves(known)
                about = {"state": "ready", "error": search.lacking}
                return known + [{**row_of(Trial(key, "", "")), **about} for key in rest]
        found = self.ended.get(run)
        for row in found:
            ts = self._scheduler.tasks.get(row["key"]) if row["state"] == "failed" else None
            if ts is not None and ts.state != "erred":
                row["state"] = "retried"  # since then, and nothing more is known of it
        return found if curves else _without_curves(found)

    def train_on(self, run: str, keys: Any, best: int | None, steps: int) -> list[dict[str, Any]]:
        """Return tasks of trials that have ended, and names of their states, which are kept.

        They are the `best` that are done, or those with these keys. They will make `steps` steps.
        """
        search = next((s for s in self.running.values() if s.run == run), None)
        if search is None:
            raise search_is_over()
        ended = {trial.key: trial for trial in search.trials.ended}
        known: Mapping[Any, TaskState] = self._scheduler.tasks
        there = {key: known[key] for key in ended if key in known}
        held = {key: ts for key, ts in there.items() if ts.run_spec is not None}
        if keys is None:
            done = [t for t in ended.values() if t.outcome == "done" and not t.diverges]
            done = [t for t in done if t.key not in search.trained_on]
            some = [t for t in done if t.key in held]
            if done and not some:
                raise InvalidSetting(
                    "no future is held of a model of this search that is done, and was not trained "
                    "on before"
                )
            keys = [t.key for t in sorted(some, key=lambda t: (t.loss, t.name))[:best]]
        tasks = [held.get(key) for key in keys]
        for key, ts in zip(keys, tasks, strict=True):
            if ts is None:
                raise InvalidSetting(
                    f"{shown(key)} is not a model of this search that has ended, and whose future "
                    "is held"
                )
        if search.trials.settings.steps is not None:
            most = max(search.trials.settings.steps, steps)
            search.trials.settings = replace(search.trials.settings, steps=most)
        search.trained_on.update(keys)
        dumps: Any = pickle.dumps
        return [
            {"key": key, "task": dumps(ts.run_spec), "states": self.states.pin(key)}
            for key, ts in zip(keys, tasks, strict=True)
            if ts is not None
        ]

    def names(self) -> list[str]:
        """Return the names of the searches that run or ended lately, the newest first."""
        return list(reversed(self._named))

    def table(
        self, name: str, *, curves: bool = True
    ) -> tuple[list[dict[str, Any]], SearchSettings | None]:
        """Return the trials of a search with their curves, and its settings, if it is known."""
        if name not in self._named:
            return [], None
        run, settings = self._named[name]
        search = self.running.get(name)
        settings = settings if search is None else search.trials.settings
        return self.trials(run, curves=curves), settings

    def check(self, name: str, settings: Mapping[str, Any]) -> RunningSearch:
        """Return a search that may change these settings. Raises `InvalidSetting`."""
        search = self.running.get(name)
        if search is None:
            raise no_search(name, settings)
        replace(search.trials.settings, **settings)
        return search

    def change(self, name: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a search. Raises `InvalidSetting`, and then nothing was changed."""
        search = self.check(name, settings)
        search.trials.change(**settings)
        search.bound, search.seen = None, (None, 0, 0)
        self._soon.ask()

    def describe(self, name: str) -> str | None:
        """Return in words what the trials of a search do; None for another job."""
        search = self.running.get(name)
        return None if search is None else search.describe(self._unstarted(search))

    # What happens

    def message(
        self,
        key: Any,
        worker: str,
        what: str,
        losses: list[float],
        computed: float,
        waited: float,
        at: float,
        number: Any = None,
        run_id: int | None = None,
        grown: Sequence[float | None] = (),
        memory: float | None = None,
        steps: Collection[int] = (),
        begins: int = 0,
        moves: int | None = None,
        state: Mapping[str, Any] | None = None,
        took: float = 0.0,
        params: Mapping[str, Any] | None = None,
        others: Sequence[Mapping[str, float]] = (),
        drawn: bool = False,
        life: float = 0.0,
        anew: bool = False,
        metric: str = "",
    ) -> None:
        """Follow the message of a trial; see `Desk.send` for `what`.

        `computed` and `waited` are seconds since the message before, `at` is the worker's Unix
        time, and `run_id` Dask's number of the run of the task. The worker has taken `memory` in
        bytes, and has `grown` by so many before each loss; None where it does not know. `steps` are
        the iterations of the losses, if the trial names them. It went on after `begins` reports,
        may leave its worker if it `moves` a number of bytes, which `took` seconds at last, and has
        kept a `state`, see `States.keep`. The `params` of its model come once, `drawn` if the task
        made them itself, and with each loss `others`. Its worker lives for `life` seconds. If
        `anew`, its model begins again with these. A loss that has a name is a `metric`.
        """
        tracker, ts = self._tracker, self._scheduler.tasks.get(key)
        pool = tracker.owner.get(key)
        search = None if pool is None else self.running.get(pool.name)
        if ts is None:
            return
        if ts.processing_on is None or ts.processing_on.address != worker:
            return  # it runs elsewhere by now
        if ts.run_id != run_id:
            return  # it was cancelled, and is wanted again: this is of the run before
        self.desks.hear(worker)
        if life:
            self.rooms.lives[worker] = life
        if search is None or pool is None:
            # Computed for somebody else, or in a block that was left, and may be entered again.
            run = (ts.annotations or {}).get("slaq_search")
            some = [(other.trials, other.runs) for other in self.running.values()]
            for trials, runs in (*some, *self._interrupted.values()):
                if run in runs:
                    trial = trials.at(key, worker, number, anew=anew)
                    trial.heard, trial.params = monotonic(), params or trial.params
                    trials.report(trial, losses, computed, steps, others)
            self.look()
            return
        first = search.begun.pop(key, None) is not None
        trial = search.trials.at(key, worker, number, anew=anew)
        trial.heard, trial.silent = monotonic(), False
        trial.held_up = first and key in search.locked
        if trial.away or (first and begins):
            search.trials.arrive(trial, begins, next(iter(steps), None))
        if not trial.reports:
            search.unreported.heard(_name_of(key))
        if params:
            trial.params = params
            if drawn and search.unreported.is_twin(key, number, params):
                told = ", ".join(f"{name}={shown(value)}" for name, value in params.items())
                self._tell_client(pool.name, SILENT, job=pool.name, why="equal", tasks=told[:300])
        if metric and metric not in search.metrics and len(search.metrics) < 2:
            search.metrics.append(metric)
            if len(search.metrics) == 2:
                told = " and ".join(map(shown, search.metrics))
                self._tell_client(pool.name, SILENT, job=pool.name, why="metrics", tasks=told)
        if moves is not None:
            if took > 0.0:
                search.speed.learn(moves, took)
            search.trials.can_move(trial, moves, search.speed.bandwidth)
            self._let_move(True)
        if state is not None:
            trial.kept = state["reports"]
            if state["name"]:
                self.states.keep(ts, worker, state["name"], state["nbytes"], state["peer"])
        if memory is not None:
            first = first or not trial.reports
            self.rooms.learn(search, trial, ts.processing_on, memory, at, grown, first=first)
        added = search.trials.report(trial, losses, computed, steps, others)
        trial.waited += waited
        if self.suspects.reported(search, trial):
            self._soon.ask()
        rests = what in ("waits", "left") or (what == "keeps" and trial.waits)
        if what == "left":
            search.left.add(key)
        elif what != "keeps":
            search.left.discard(key)
        tracker.charge_part(pool, ts, computed, None if rests else at)
        done = self._engine.jobs[pool.name].iteration
        for more in filter(None, added):
            done += more
            # Without any usable loss the best is infinite, and only the iterations count.
            self._report(pool.name, search.trials.best, step=None if more == 1 else done)
        if what in ("pruned", "stopped"):
            search.trials.judge(trial, what)
            ts.retries = 0  # a verdict is final
        if what == "keeps":
            pass  # it goes on as it did
        elif rests:
            trial.waits = True
            tracker.rested(ts, idle=what == "waits")
        elif what == "goes" or trial.waits or ts in ts.processing_on.long_running:
            search.trials.begin_turn(trial)
            tracker.resumed(ts)
            self.suspects.spare()
            search.revoked.pop(worker, None)
        search.promise()
        pool.waiting = search.trials.waiting
        # Within its turn a trial goes on anyway, and is not forecast.
        if what == "keeps" and trial.in_turn:
            return
        if what != "reports" or not trial.in_turn or not self.desks.knows(worker):
            self._soon.ask()

    def seceded(self, key: Any) -> None:
        """Count a trial whose task has given up its thread, before it tells why."""
        pool = self._tracker.owner.get(key)
        search = None if pool is None else self.running.get(pool.name)
        trial = None if search is None else search.trials.alive.get(key)
        if search is not None and trial is not None:
            trial.waits = True
            search.left.add(key)
            search.pool.waiting = search.trials.waiting
            search.promise()

    def log_event(self, event: Any) -> None:
        """Hear the scheduler tell of clients and workers that leave."""
        what = event.get("action") if isinstance(event, dict) else None
        if what == LEAVES:
            self.kept.client_leaves(event["client"])
        elif what == DIES:
            dies = not event.get("expected")
            self.rooms.leaves(event["worker"], dies=dies)
            some = [s for s in self.running.values() if dies and not self._is_freed(s)]
            self.suspects.worker_dies(event["worker"], some)

    def hear_of_stray(self, told: Mapping[str, Any], worker: str) -> None:
        """Tell the client of a job that its task there reports as if it were one of a search.

        In a search, such a report lacks the loss.
        """
        key: Any = told.get("key")
        ts = pool = None
        with suppress(TypeError):  # not a key
            ts, pool = self._scheduler.tasks.get(key), self._tracker.owner.get(key)
        there = ts is not None and ts.processing_on and ts.processing_on.address == worker
        search = self.running.get(pool.name) if there and pool is not None else None
        if search is not None and isinstance(told.get("has"), list | tuple):
            search.lacks = shown(told.get("metric"))
            names = told["has"][: MOST_METRICS - len(search.has)]
            search.has |= dict.fromkeys(map(printable, names))
        elif there and pool is not None and pool.reports and search is None:
            self._tell_client(pool.name, SILENT, job=pool.name, why="job", tasks=_name_of(key))

    def _warn_of_silence(self, name: str, search: RunningSearch, least: int) -> None:
        """Tell the client which tasks ended without any report, if `least` of a name have."""
        tasks: Mapping[Any, TaskState] = self._scheduler.tasks
        for kind, n in search.unreported.of(least, lambda key: _is_input(tasks.get(key))):
            about = {"why": "silent", "tasks": kind, "n": n}
            if search.lacking:
                about = {"why": "metric", "tasks": search.lacking}
            self._tell_client(name, SILENT, job=name, **about)

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left. If its memory was the reason, none waits on those like it."""
        self.desks.forget_worker(worker)
        if self.rooms.forget_worker(worker):
            self._soon.ask()

    def transition(self, key: Any, start: str, finish: str, worker: str | None = None) -> None:
        """Follow the transition of a task, maybe off a worker.

        Call it before the pool forgets the task.
        """
        pool = self._tracker.owner.get(key)
        search = None if pool is None else self.running.get(pool.name)
        if finish in ("memory", "erred", "forgotten"):
            for other in self.running.values():
                if key in other.elsewhere:
                    self._later(self._ended_elsewhere, other, key)
        if search is None:
            for other in self.running.values() if finish == "forgotten" else ():
                self._drop_inherited(other, key)
            if finish == "processing":
                ts = self._scheduler.tasks[key]
                run = (ts.annotations or {}).get("slaq_search")
                for other in self.running.values() if run is not None else ():
                    wanted_by = [cs.client_key for cs in ts.who_wants or ()]
                    if run in other.runs and other.pool.client in wanted_by:
                        other.elsewhere[key] = run  # its model is computed for somebody else
            self._soon.ask()  # it may leave a thread to trials, or take one
            return
        if pool is not None and self._scheduler.tasks[key] in pool.inner:
            self._soon.ask()  # so may a task that a model has submitted
            return
        if start != "processing" and finish in ("erred", "forgotten") and search.is_guest(key):
            search.trials.end(key, _OUTCOMES.get(finish, ""))
            search.pool.waiting = search.trials.waiting
        if finish == "waiting":
            search.trials.again(key)
        else:
            self._drop_inherited(search, key)
        if finish == "processing":
            ts = self._scheduler.tasks[key]
            search.begun[key] = ts
            search.cut_off.discard(key)
            self.suspects.spare()
        elif start == "processing":
            search.begun.pop(key, None)
            search.left.discard(key)
            outcome = _OUTCOMES.get(finish, "")
            error = str(self._scheduler.tasks[key].exception_text or "") if outcome else ""
            if key in search.trials.alive:
                if not outcome:
                    search.cut_off.add(key)
                if outcome or not self._leaves(search, key):
                    search.trials.end(key, outcome, error)
                search.pool.waiting = search.trials.waiting
            elif outcome == "failed" and all(trial.key != key for trial in search.trials):
                # Before its first report.
                search.trials.at(key, worker or "")
                search.trials.end(key, outcome, error)
            elif pool is not None and outcome == "done" and not search.trials.has_ended(key):
                search.unreported.ended(_name_of(key), key)
                self._warn_of_silence(pool.name, search, least=FEW)
        if finish in ("memory", "erred", "forgotten"):
            search.suspects.pop(key, None)
        if finish == "forgotten":
            search.trials.forget(key)
        search.promise()
        if search.outcome is not None and finish not in ("processing", "waiting", "no-worker"):
            self._later(self._end_if_over, search)
        self._soon.ask()

    def _drop_inherited(self, search: RunningSearch, key: Any) -> None:
        """Drop a trial of the earlier block that the new one does not want."""
        if key in search.inherited and not self._is_wanted(key):
            search.inherited.discard(key)
            search.trials.drop(key)

    def _leaves(self, search: RunningSearch, key: Any) -> bool:
        """Hold a model that is on no worker any more. Returns whether it goes on from a state."""
        if not search.trials.leave(key):
            return False
        if self._tracker.models_move and not self._is_freed(search):
            self._tracker.away[key] = self._scheduler.tasks[key]
        return True

    def _is_freed(self, search: RunningSearch) -> bool:
        """Return whether a search is left to Dask: by the policy, or as it is stopped."""
        plain = not (self._engine.traits.holds_tasks or search.pool.paused)
        return plain or search.pool.name in self._stopping

    def look(self) -> None:
        """Choose again soon: a worker has changed."""
        if self.running:
            self._soon.ask()

    def _is_wanted(self, key: Any) -> bool:
        ts = self._scheduler.tasks.get(key)
        return ts is not None and bool(ts.who_wants)

    def _end_if_over(self, search: RunningSearch) -> None:
        name = search.pool.name
        if self.running.get(name) is search and not search.goes_on:
            self._end_job(name, search.outcome)

    # Choices

    def _later(self, call: Callable[..., object], *args: Any) -> None:
        """Call something soon, and not at once: this may be called inside a transition."""
        asyncio.get_running_loop().call_soon(self._enter, call, *args)

    def _decide_if_active(self) -> None:
        if self._is_active():
            self._decide()
        elif self.running:
            self.release_all()

    def _decide(self) -> None:
        """Choose the trials that train on every worker, and tell the workers."""
        with self._soon.work():
            self.desks.tell(self._choose())

    def _choose(self) -> dict[str, list[dict[str, Any]]]:
        """Return the turns of the trials on every worker where some are alive."""
        now = monotonic()
        pools = self._pools.values()
        wanting = {pool.name for pool in pools if pool.ready and not pool.paused}
        for name, search in self.running.items():
            if search.trials.waiting and not search.pool.paused:
                wanting.add(name)
        plain = not self._engine.traits.holds_tasks
        self.rooms.claim()
        for name, search in self.running.items():
            self.silence.look(name, search.trials, now, now - self._decided)
            self._bound(name, search)
        rooms_of = self.rooms.divide(wanting, self.draining, now - self._decided)
        turns: dict[str, list[dict[str, Any]]] = {}
        for name, search in self.running.items():
            free = self._free(search)
            unstarted = 0 if search.pool.paused else self._unstarted(search)
            rooms = rooms_of[name]
            for job, trial in search.jobs.items():
                if not trial.verdict and search.trials.gives_up(trial):
                    search.trials.judge(trial, "pruned")
                    self._stop(job)
            freed, places = self._is_freed(search), None
            if self._tracker.models_move and not freed:
                places = Places(self.states.at, search.speed.bandwidth, self._allowed(search))
            choice, found = decide(search.trials, rooms, unstarted, places)
            if freed:
                self._release(search)
            elif places is not None:
                self._to_send += [(search, move.key, move.worker) for move in found]
                self._to_send += self.suspects.next(search, places.allowed)
                self._later(self._send_models)
            search.give_turns(choice)
            for worker, chosen in choice.items():
                if plain and not search.pool.paused:
                    chosen.width, chosen.explored = len(chosen.order), 0
                turn = {
                    "run": search.run,
                    "runs": search.runs,
                    "order": chosen.order,
                    "width": chosen.width,
                    "explore": search.trials.explore,
                    "explored": chosen.explored,
                    "prune": chosen.pruned,
                    "free": free,
                    "steps": search.trials.settings.steps,
                    "stop": name in self._stopping,
                    "leave": chosen.leave,
                    "leaves": rooms[worker].leaves,
                    "apart": rooms[worker].held_up > 0,
                    "peer": self.desks.peer_of(worker),
                }
                turns.setdefault(worker, []).append(turn)
        self.suspects.spare()
        self._decided = now
        return turns

    def _free(self, search: RunningSearch) -> list[Any]:
        """Mark trials of which others want the result, and return their keys.

        They neither wait nor are given up: under plain Dask, others would have the result. A search
        that is stopped tells it of all tasks, as the next one may begin at any time.
        """
        alive = search.trials.alive
        some: list[Any] = list(alive)
        if search.pool.name in self._stopping:
            unfinished = (ts.key for ts in search.pool.unfinished)
            some += [key for key in (*unfinished, *search.elsewhere) if key not in alive]
        tasks, client = self._scheduler.tasks, search.pool.client
        known = {key for other in self.running.values() for key in other.elsewhere}
        found = []
        for key in some:
            is_shared = key in known or self._is_wanted_by_others(tasks.get(key), client)
            if is_shared:
                found.append(key)
            if key in alive:
                alive[key].shared = is_shared
        return found

    def _is_wanted_by_others(self, ts: TaskState | None, client: str) -> bool:
        """Return whether somebody else than a client waits for a task, or for what needs it."""
        if ts is None:
            return False
        for cs in ts.who_wants or ():
            if cs.client_key != client and cs.client_key in self._scheduler.client_comms:
                return True
        return any(pool.client != client for pool in self._tracker.waiting_for(ts))

    def _allowed(self, search: RunningSearch) -> dict[Any, list[str]]:
        """Return the workers where models of a search may run that may not run everywhere."""
        tasks, allowed = self._scheduler.tasks, {}
        tried = {*self.suspects.tried(), *self.draining} if search.suspects else set()
        for key in {**search.trials.alive, **search.suspects}:
            ts: TaskState | None = tasks.get(key)
            if ts is None:
                continue
            suspect = key in search.suspects
            restricted = ts.worker_restrictions or ts.host_restrictions or ts.resource_restrictions
            if restricted or suspect:
                some = self._tracker.control.allowed(ts)
                some = self._scheduler.running if some is None else some
                some = {ws for ws in some if not (suspect and ws.address in tried)}
                needs = TaskKind(None, tuple((ts.resource_restrictions or {}).items()))
                group = search.pool.group
                if group is not None and not group.supplies(needs.resources or ()):
                    some = set()
                allowed[key] = [ws.address for ws in some if needs.allows(ws)]
        return allowed

    def _send_models(self) -> None:
        """Send models that have left their worker to the workers where they go on."""
        some, self._to_send = self._to_send, []
        tried = self.suspects.tried()
        for search, key, worker in some:
            suspect = key in search.suspects
            ts, ws = self._tracker.away.get(key), self._scheduler.workers.get(worker)
            trial = search.trials.alive.get(key)
            if ts is None or ws is None or ts.state != "no-worker":
                continue
            if (trial is None and not suspect) or (suspect and worker in tried):
                continue
            group, needs = search.pool.group, ts.resource_restrictions or {}
            if group is not None and not (group.has_room() and group.supplies(needs.items())):
                continue  # until the one whose thread it takes has reported
            if self._tracker.send_back(ts, ws):
                if suspect:
                    tried.add(worker)
                if trial is not None:
                    trial.waits, trial.worker = False, worker
                search.pool.waiting = search.trials.waiting
        if self._scheduler.queued and self._is_active():
            self._tracker.control.fill()

    def _bound(self, name: str, search: RunningSearch) -> None:
        """Set the number of steps that a search will make, if its trials have a bound."""
        steps = search.trials.settings.steps
        models = len(search.pool.tasks) - len(search.pool.inner)
        seen = steps, models, search.trials.tasks_ended
        if not steps or seen == search.seen:
            return
        search.seen = seen
        # Models that were pruned or have failed make no further steps.
        left = {t.key: steps - t.step for t in search.trials.ended if t.outcome != "done"}
        bound = steps * models - sum(max(n, 0) for n in left.values())
        if bound > 0 and bound != search.bound:
            search.bound = bound
            self._engine.set_max_iter(name, bound)

    def _unstarted(self, search: RunningSearch) -> int:
        """Return the number of ready tasks of a search that are on no worker."""
        if self._tracker.holding:
            return len(search.pool.ready.keys() - search.pool.inner)
        tasks = search.pool.tasks - search.pool.inner
        return sum(ts in tasks for ts in self._scheduler.queued)


#: How a trial ended, by the state of its task.
_OUTCOMES: dict[str, str] = {"memory": "done", "erred": "failed"}

#: How trials end that are not dropped.
ENDS_OF_TRIALS = ("done", "pruned", "stopped", "failed")


def _without_curves(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of trials without their curves."""
    for row in rows:
        for part in ("steps", "losses", "others"):
            row.pop(part, None)
    return rows


def _name_of(key: Any) -> str:
    """Return the name that a task shares with those of its kind."""
    # joblib's batches tell their size, and whether their calls are of one function.
    return re.sub(r"^mixed_|_\d+_calls$", "", key_split(key))


def _is_input(ts: TaskState | None) -> bool:
    """Return whether a task made what other tasks need: it trained no model."""
    return ts is not None and bool(ts.dependents)
