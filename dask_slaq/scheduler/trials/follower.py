"""What trials tell, and what becomes of their tasks: the state of searches follows both."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any

from dask.utils import key_split
from distributed.scheduler import TaskState

from dask_slaq.core.jobs.reports import MOST_METRICS
from dask_slaq.core.search_settings import FEWEST_REPORTS
from dask_slaq.core.settings import SILENT, shown
from dask_slaq.core.text import printable
from dask_slaq.core.trials import Trial, TrialEvent, Trials, TrialState
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.pools import Pool, load
from dask_slaq.scheduler.trials.choices import Choices
from dask_slaq.scheduler.trials.running import OUTCOMES, RunningSearch

logger = logging.getLogger(__name__)

#: What a trial does from then on that gives up its thread.
STOPS = {TrialEvent.WAITS: TrialState.WAITS, TrialEvent.LEFT: TrialState.LEFT}
#: Tasks of a name that ended without a report, or models that rise, that are told at once.
FEW_MODELS = 3


@dataclass(frozen=True, slots=True)
class TrialMessage:
    """Message of a trial; see `check_trial` for the checks."""

    key: Any
    what: TrialEvent
    losses: list[float]
    computed: float  # seconds since the message before, as the next
    waited: float
    at: float  # the worker's Unix time
    number: Any
    run_id: int | None  # Dask's number of the run of the task
    steps: Collection[int]  # iterations of the losses, if the trial names them
    # By how many bytes its worker has grown before each loss, and has taken; None: not known.
    grown: Sequence[float | None]
    memory: float | None
    begins: int  # reports after which it went on
    moves: int | None  # bytes that it would move to another worker, if it may leave
    state: Mapping[str, Any] | None  # that it has kept, see `States.keep`
    took: float  # seconds of its last move
    params: Mapping[str, Any] | None  # of its model, which come once
    others: Sequence[Mapping[str, float]]  # metrics with each loss
    drawn: bool  # whether the task made the parameters itself
    life: float  # seconds for which its worker lives
    anew: bool  # whether its model begins again with these
    curve: int  # how often it has
    group: tuple[str, str] | None  # in which it is compared, and its candidate; they come once
    metric: str  # name of the loss


class Follower:
    """Follower of the searches in `running`, and of those that an exception has `interrupted`.

    `end_if_over` ends a search whose last model has ended.
    """

    def __init__(
        self,
        jobs: ScheduledJobs,
        running: Mapping[str, RunningSearch],
        interrupted: Mapping[tuple[str, str], tuple[Trials, list[str]]],
        choices: Choices,
        end_if_over: Callable[[RunningSearch], None],
    ) -> None:
        self._scheduler, self._engine, self._report = jobs.scheduler, jobs.engine, jobs.report
        self._tracker, self._let_move = jobs.pools.tracker, jobs.pools.let_models_move
        self._running, self._interrupted, self._end_if_over = running, interrupted, end_if_over
        self._tell = jobs.tell_client
        self._agents, self._quotas, self._states = choices.agents, choices.quotas, choices.states
        self._ask, self._defer, self._is_freed = choices.ask, choices.defer, choices.is_freed

    def _search_of(self, key: Any) -> RunningSearch | None:
        """Return the search that submitted a task, even if a job that waits for it adopted it."""
        pool = self._tracker.records.pool_of.get(key)
        search = None if pool is None else self._running.get(pool.name)
        if search is None and pool is not None:
            notes = self._scheduler.tasks[key].annotations or {}
            about = notes.get("slaq_search"), notes.get("slaq_job")
            for each in self._running.values() if about[0] is not None else ():
                if about[0] in each.runs and about[1] == each.pool.name:
                    return each
        return search

    def _warn(self, pool: Pool, why: str, **about: Any) -> None:
        self._tell(pool.name, SILENT, job=pool.name, why=why, **about)

    def _warn_once(self, search: RunningSearch, why: str, **about: Any) -> None:
        if search.unreported.is_new(why):
            self._warn(search.pool, why, **about)

    def receive(self, worker: str, message: TrialMessage) -> None:
        """Follow the message of a trial."""
        ts, what = self._scheduler.tasks.get(message.key), message.what
        if ts is None or ts.processing_on is None or ts.processing_on.address != worker:
            return  # it runs elsewhere by now
        if ts.run_id != message.run_id:
            return  # it was cancelled, and is wanted again: this is of the run before
        self._agents.hear(worker)
        if message.life:
            self._quotas.lives[worker] = message.life
        if (search := self._search_of(message.key)) is None:
            self._report_of_interrupted(ts, worker, message)
            return
        pool, first = search.pool, search.begun.pop(ts.key, None) is not None
        trial = search.trials.at(ts.key, worker, message.number, anew=message.anew)
        trial.curve, step = message.curve, next(iter(message.steps), None)
        begins = message.begins if first or trial.state.migrates else 0
        is_late = first and ts.key in search.locked
        search.trials.hear(trial, monotonic(), begins, step, late=is_late)
        if not trial.reports:
            search.unreported.heard(_name_of(ts.key))
        for learn in (self._learn_params, self._learn_metric, self._learn_to_move, self._keep):
            learn(search, trial, message)
        self._learn_memory(search, trial, message, first=first)
        added = search.trials.report(
            trial, message.losses, message.computed, message.steps, message.others
        )
        self._look_for_scores(search, trial, FEWEST_REPORTS)
        trial.times.waited += message.waited
        steps = search.trials.settings.steps
        if steps and (trial.step > 2 * steps or trial.curve > 1):
            self._warn_once(search, "several", tasks=_name_of(ts.key), n=steps)
        idle = trial.state.waits if what is TrialEvent.KEEPS else what in STOPS
        payer, until = self._tracker.records.pool_of[ts.key], None if idle else message.at
        self._tracker.charges.charge_part(payer, ts, message.computed, message.waited, until)
        done = self._engine.jobs[pool.name].iteration
        for more in filter(None, added):
            done += more
            # Without any usable loss the best is infinite, and only the iterations count.
            self._report(pool.name, search.trials.best, step=None if more == 1 else done)
        self._take_turn(search, trial, ts, what)
        pool.waiting = search.trials.waiting
        if trial.odd:
            odd, trial.odd = trial.odd, ""
            logger.error("model %s: %s", trial.key, odd)
            assert not self._scheduler.validate, odd
        # Within its turn a trial goes on anyway, and is not forecast.
        if what is TrialEvent.KEEPS and trial.in_turn:
            return
        if what is not TrialEvent.REPORTS or not trial.in_turn or not self._agents.knows(worker):
            self._ask(rest=what is not TrialEvent.PRUNED or trial.candidate is None)

    def _report_of_interrupted(self, ts: TaskState, worker: str, message: TrialMessage) -> None:
        """Follow a model of a block that may be entered again."""
        run = (ts.annotations or {}).get("slaq_search")
        for trials, runs in self._interrupted.values():
            if run in runs:
                trial = trials.at(ts.key, worker, message.number, anew=message.anew)
                trial.heard, trial.params = monotonic(), message.params or trial.params
                trials.report(
                    trial, message.losses, message.computed, message.steps, message.others
                )

    def _learn_params(self, search: RunningSearch, trial: Trial, message: TrialMessage) -> None:
        """Learn the parameters of a model, and the group in which it is compared."""
        if message.group is not None:
            search.trials.put_into_group(trial, *message.group)
        if not message.params:
            return
        trial.params = message.params
        by = search.trials.settings.group
        if by is not None and message.group is None:
            names = ", ".join(map(shown, message.params))
            self._warn_once(search, "group", tasks=f"{shown(by)}; they have {names}")
        if message.drawn and search.unreported.is_twin(trial.key, message.number, message.params):
            params = ", ".join(f"{name}={shown(value)}" for name, value in message.params.items())
            self._warn(search.pool, "equal", tasks=params[:300])

    def _learn_metric(self, search: RunningSearch, trial: Trial, message: TrialMessage) -> None:
        """Learn the name of the loss, and warn if models have several."""
        if message.metric and message.metric not in search.metrics and len(search.metrics) < 2:
            search.metrics.append(message.metric)
            if len(search.metrics) == 2:
                self._warn(search.pool, "metrics", tasks=" and ".join(map(shown, search.metrics)))

    def _look_for_scores(self, search: RunningSearch, trial: Trial, least: int) -> None:
        """Tell the client once if the losses of all models only rose, in `least` reports each."""
        losses = trial.losses
        if search.rising is None or not trial.reports:
            return
        if losses.missed or losses.lowest_step > losses.curve.steps[0]:
            search.rising = None
        elif losses.count >= least and losses.latest > losses.lowest:
            search.rising.add(trial.name)
            if len(search.rising) >= FEW_MODELS:
                search.rising = None
                self._warn_once(search, "scores")

    def _learn_to_move(self, search: RunningSearch, trial: Trial, message: TrialMessage) -> None:
        """Learn whether a model may leave its worker, and how long that takes."""
        if message.moves is not None:
            if message.took > 0.0:
                search.speed.learn(message.moves, message.took)
            search.trials.can_move(trial, message.moves, search.speed.bandwidth)
            self._let_move(True)

    def _keep(self, search: RunningSearch, trial: Trial, message: TrialMessage) -> None:
        """Record the state that a model has kept."""
        if (state := message.state) is not None:
            trial.checkpoint.reports, ts = state["reports"], self._scheduler.tasks[message.key]
            if state["name"]:
                self._states.keep(ts, trial.worker, state["name"], state["nbytes"], state["peer"])

    def _learn_memory(
        self, search: RunningSearch, trial: Trial, message: TrialMessage, *, first: bool
    ) -> None:
        """Learn what memory models take."""
        if message.memory is not None:
            ws, first = self._scheduler.workers[trial.worker], first or not trial.reports
            self._quotas.learn(
                search, trial, ws, message.memory, message.at, message.grown, first=first
            )

    def _promise(self, search: RunningSearch, worker: str) -> None:
        """Keep the threads of a worker that trials take by themselves."""
        self._tracker.look(search.promised.update(worker))

    def _look(self, search: RunningSearch, worker: str) -> None:
        """Have a choice made at once if a thread of a worker idles while trials wait there."""
        ws = self._scheduler.workers.get(worker)
        if ws is None or search.pool.ready or search.promised.by_worker.get(worker):
            return
        if load(ws) < ws.nthreads and any(
            t.state.stays and t.worker == worker for t in search.trials.alive.values()
        ):
            self._ask(rest=False)

    def _take_turn(
        self, search: RunningSearch, trial: Trial, ts: TaskState, what: TrialEvent
    ) -> None:
        """Follow whether a trial goes on, waits, or has heard its verdict."""
        ws: Any = ts.processing_on
        if what in (TrialEvent.PRUNED, TrialEvent.STOPPED):
            trial.verdict = what.value
            if what is TrialEvent.PRUNED and (name := search.trials.lacks_groups()):
                self._warn_once(search, "groups", tasks=name)
            ts.retries = 0  # a verdict is final
        if what in STOPS:
            trial.become(STOPS[what])
            self._promise(search, ws.address)
            self._tracker.gave_up_thread(ts, idle=what is TrialEvent.WAITS)
            self._look(search, ws.address)
        elif what is not TrialEvent.KEEPS and (
            what is TrialEvent.GOES or trial.state.waits or ts in ws.long_running
        ):
            search.trials.begin_turn(trial)
            self._tracker.resumed(ts)
            self._tracker.look(search.promised.went_on(ws.address))

    def warn_of_unowned(self, message: Mapping[str, Any], worker: str) -> None:
        """Tell the client of a job that its task there reports as if it were one of a search.

        In a search, such a report lacks the loss, or its model changes an argument of others.
        """
        key: Any = message.get("key")
        ts = pool = None
        with suppress(TypeError):  # not a key
            ts, pool = self._scheduler.tasks.get(key), self._tracker.records.pool_of.get(key)
        there = ts is not None and ts.processing_on and ts.processing_on.address == worker
        search = self._running.get(pool.name) if there and pool is not None else None
        if search is not None and isinstance(message.get("changed"), str):
            self._warn_once(search, "shared", tasks=printable(message["changed"])[:100])
        elif search is not None and isinstance(message.get("has"), list | tuple):
            search.lacks = shown(message.get("metric"))
            names = message["has"][: MOST_METRICS - len(search.has)]
            search.has |= dict.fromkeys(map(printable, names))
        elif there and pool is not None and pool.reports and search is None:
            self._warn(pool, "job", tasks=_name_of(key))

    def warn_of_silence(self, search: RunningSearch, least: int) -> None:
        """Tell the client which tasks ended without any report, if `least` of a name have."""
        tasks: Mapping[Any, TaskState] = self._scheduler.tasks
        for kind, n in search.unreported.of(least, lambda key: _is_input(tasks.get(key))):
            if search.lacking:
                self._warn(search.pool, "metric", tasks=search.lacking)
            else:
                self._warn(search.pool, "silent", tasks=kind, n=n)

    def warn_of_unknown(self, search: RunningSearch) -> None:
        """Tell the client that no task was submitted, or of which ones nothing can be known."""
        models = {_name_of(trial.key) for trial in search.trials}
        is_empty = not (search.pool.tasks or search.pool.ended or models)
        tasks: Mapping[Any, TaskState] = self._scheduler.tasks
        kinds = [_name_of(key) for key in search.unknown if not _is_input(tasks.get(key))]
        if others := [kind for kind in kinds if not models or kind in models]:
            self._warn(search.pool, "known", tasks=others[0], n=len(others))
        elif is_empty:
            self._warn(search.pool, "empty")

    def seceded(self, key: Any) -> None:
        """Count a trial whose task has given up its thread, before it tells why."""
        search = self._search_of(key)
        if search is not None:
            self._tracker.charges.learned.seceded(self._scheduler.tasks[key])
        if search is not None and (trial := search.trials.alive.get(key)) is not None:
            search.trials.secede(trial)
            search.pool.waiting = search.trials.waiting
            self._promise(search, trial.worker)

    def submits(self, key: Any) -> None:
        """Look whether a model that submits tasks left its thread: Dask tells it only once."""
        search = None
        with suppress(TypeError):  # what a client names may be no key
            search = self._search_of(key)
        trial = None if search is None else search.trials.alive.get(key)
        if trial is not None and trial.state.trains:
            self._agents.look(trial.worker)

    def claim(self, name: str, ts: TaskState) -> None:
        """Follow a task of an earlier block of this name; it may be on a worker already."""
        if (search := self._running.get(name)) is None:
            return
        search.inherited.add(ts.key)
        if ts.processing_on is not None:
            if ts.key not in search.trials.alive:
                search.begun[ts.key] = ts
            self._ask()

    def transition(self, key: Any, start: str, finish: str, worker: str | None = None) -> None:
        """Follow the transition of a task, maybe off a worker.

        Call it before the pool forgets the task.
        """
        search = self._search_of(key)
        if search is None:
            for other in self._running.values() if finish == "forgotten" else ():
                self._drop_inherited(other, key)
        elif self._scheduler.tasks[key] not in search.pool.inner:
            self._follow_model(search, key, start, finish, worker)
        elif search.outcome is not None and finish in ("memory", "erred", "released", "forgotten"):
            self._defer(self._end_if_over, search)  # it may be the last task of a cancelled model
        self._ask()  # any task may leave a thread to trials, or take one

    def _follow_model(
        self, search: RunningSearch, key: Any, start: str, finish: str, worker: str | None
    ) -> None:
        """Follow the transition of a task of a search that was not submitted by a model."""
        if start != "processing" and finish in ("erred", "forgotten") and search.is_guest(key):
            search.trials.end(key, OUTCOMES.get(finish, ""))
            search.pool.waiting = search.trials.waiting
        if finish == "waiting":
            search.trials.again(key)
        else:
            self._drop_inherited(search, key)
        if finish == "processing":
            search.begun[key] = ts = self._scheduler.tasks[key]
            self._tracker.charges.learned.begin(ts)
            search.cut_off.discard(key)
        elif start == "processing":
            trial = search.trials.alive.get(key)
            at = worker or (trial.worker if trial is not None else "")
            self._off_worker(search, key, finish, worker)
            self._promise(search, at)
            self._look(search, at)
        if search.outcome is not None and finish not in ("processing", "waiting", "no-worker"):
            self._defer(self._end_if_over, search)

    def _off_worker(self, search: RunningSearch, key: Any, finish: str, worker: str | None) -> None:
        """Follow a model that leaves its worker: it has ended, or goes on later."""
        search.begun.pop(key, None)
        outcome = OUTCOMES.get(finish, "")
        error = str(self._scheduler.tasks[key].exception_text or "") if outcome else ""
        if key in search.trials.alive:
            if not outcome:
                search.cut_off.add(key)
            if outcome == "done":
                self._look_for_scores(search, search.trials.alive[key], 2)
            if outcome or not search.trials.leave(key):
                search.trials.end(key, outcome, error)
            elif self._tracker.records.models_move and not self._is_freed(search):
                self._tracker.records.migrating[key] = self._scheduler.tasks[
                    key
                ]  # it goes on from a state
            search.pool.waiting = search.trials.waiting
        elif outcome == "failed" and all(trial.key != key for trial in search.trials):
            # Before its first report.
            search.trials.at(key, worker or "")
            search.trials.end(key, outcome, error)
        elif outcome == "done" and key not in search.trials.ended_of:
            search.unreported.ended(_name_of(key), key)
            self.warn_of_silence(search, least=FEW_MODELS)

    def _drop_inherited(self, search: RunningSearch, key: Any) -> None:
        """Drop a trial of the earlier block that the new one does not want."""
        ts = self._scheduler.tasks.get(key)
        if key in search.inherited and (ts is None or not ts.who_wants):
            search.inherited.discard(key)
            search.trials.drop(key)


def _name_of(key: Any) -> str:
    """Return the name that a task shares with those of its kind."""
    # joblib's batches tell their size, and whether their calls are of one function.
    return re.sub(r"^mixed_|_\d+_calls$", "", key_split(key))


def _is_input(ts: TaskState | None) -> bool:
    """Return whether a task made what other tasks need: it trained no model."""
    return ts is not None and bool(ts.dependents)
