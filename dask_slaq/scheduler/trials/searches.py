"""Searches on one scheduler: how they begin, go on in other blocks, and end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import Any

from dask_slaq.core.fairly import oldest_of_most
from dask_slaq.core.search_settings import no_search
from dask_slaq.core.settings import is_whole
from dask_slaq.core.trials import EndedSearches, PastModel, SearchSettings, Trials, group_of
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.trials.choices import Choices
from dask_slaq.scheduler.trials.follower import Follower
from dask_slaq.scheduler.trials.kept import KeptSearch, KeptSearches
from dask_slaq.scheduler.trials.running import OUTCOMES, RunningSearch
from dask_slaq.scheduler.trials.states import remove_files
from dask_slaq.scheduler.trials.tables import Tables

#: What Dask tells of a client just before it drops what the client wants, and of a worker.
LEAVES, DIES = "remove-client", "remove-worker"


class Searches:
    """Searches of one scheduler.

    `enter` calls what the event loop has to do: after an error in that, nothing `is_active`. At
    most so many are remembered that were interrupted.
    """

    def __init__(
        self,
        jobs: ScheduledJobs,
        end_job: Callable[[str, str | None], None],
        is_active: Callable[[], bool],
        enter: Callable[..., Any],
        most_interrupted: int = 20,
    ) -> None:
        self._most_interrupted = most_interrupted
        self._scheduler, self._engine, self._report = jobs.scheduler, jobs.engine, jobs.report
        self._pools, self._end_job, self._is_active = jobs.pools, end_job, is_active
        self.running = running = dict[str, RunningSearch]()
        self._with_job: dict[str, RunningSearch] = {}  # searches whose models are jobs, by these
        self.ended = EndedSearches()
        # Trials and blocks of searches whose block an exception left, by client and name, the last
        # ones. A search goes on in the next block of its name.
        self._interrupted: OrderedDict[tuple[str, str], tuple[Trials, list[str]]] = OrderedDict()
        self.kept = KeptSearches(jobs.scheduler, self._end_kept, enter)
        self.choices = choices = Choices(jobs, running, enter, is_active, self.release_all)
        self.agents, self.quotas = choices.agents, choices.quotas
        self.states, self._defer, end = choices.states, choices.defer, self._end_if_over
        self.follower = Follower(jobs, running, self._interrupted, choices, end)
        self.tables = Tables(jobs.scheduler, running, self.ended, self.states)

    def begin(
        self,
        name: str,
        run: str,
        settings: SearchSettings,
        *,
        owner: str = "",
        kept: KeptSearch | None = None,
        past: Iterable[PastModel] = (),
    ) -> None:
        """Begin a search whose job was opened; `run` is the identifier of its block.

        After an earlier block of its name that an exception left, its models are known; so are
        those of a search that has ended and was `kept`. `past` are models of searches like it.
        """
        search = self.running[name] = RunningSearch(self._pools.pools[name], run, settings, past)
        self._pools.sent.promises[name] = search.promised.by_worker
        if kept is not None:
            self._interrupted[search.pool.client, name] = kept.search.trials, kept.search.runs
            self.kept.hand_over(kept, search)
        elif settings.keep is not None:
            self.kept.begin(search, owner, settings.keep)
        self.quotas.see_workers()
        if (before := self._interrupted.pop((search.pool.client, name), None)) is not None:
            trials, runs = before
            search.runs += runs
            if trials.settings.maximize == settings.maximize:
                self._end_lost(trials)
                search.trials = search.promised.trials = trials
                trials.settings = settings
                search.inherited = {trial.key for trial in trials}
        self.tables.begin(search)
        self.agents.prepare(self._scheduler.workers.values())
        self.choices.beat.start()

    def _end_lost(self, trials: Trials) -> None:
        """End the trials whose tasks have ended after the block was left; drop unwanted ones."""
        keys: set[Any] = {trial.key for trial in trials}
        for key in keys:
            ts = self._scheduler.tasks.get(key)
            if ts is None or not ts.who_wants:
                trials.drop(key)
            elif ts.state != "processing":
                trials.end(key, OUTCOMES.get(ts.state, ""))

    def submitted(self, client: str, keys: Collection[Any]) -> None:
        """Follow a graph of a client. What others have submitted before is left to them.

        A cell of a notebook that is run again submits the same tasks. While their futures are held
        nothing is computed, but the last search of this name knows the models.
        """
        self.choices.ask()  # a model that others want is not given up
        if (search := self._block_of(client)) is None:
            return
        for key in keys:
            ts = self._scheduler.tasks[key]
            is_over = ts.state in OUTCOMES
            known = key in search.trials.alive or key in search.trials.ended_of
            if ts.run_spec is None or ts.state == "released" or known:
                continue
            if not is_over and self._pools.records.pool_of.get(key) is search.pool:
                continue
            if (ts.annotations or {}).get("slaq_search") not in search.runs:
                rows = self._rows_before(search).get(key, ()) if is_over else ()
                for row in rows:
                    search.trials.restore(row)
                if not rows:
                    search.unknown[key] = None

    def _block_of(self, client: str) -> RunningSearch | None:
        """Return the search of a client in whose block its last graph was submitted, if any was."""
        latest = next(reversed(self._scheduler.computations), None)
        about = {} if latest is None else latest.annotations
        block = about.get("slaq_search"), about.get("slaq_job"), client  # a job in it has its own
        some = (search for search in self.running.values() if search.outcome is None)
        return next((s for s in some if (s.run, s.pool.name, s.pool.client) == block), None)

    def _rows_before(self, search: RunningSearch) -> dict[Any, list[dict[str, Any]]]:
        if search.rows_before is None:
            search.rows_before = {}
            for row in self.ended.get(search.before):
                if row["state"] in ("done", "pruned", "stopped", "failed"):
                    search.rows_before.setdefault(row["key"], []).append(row)
        return search.rows_before

    def around(self, name: str | None, owner: str) -> RunningSearch | None:
        """Return the search of an `owner` in whose block, that of `name`, a job is opened."""
        search = None if name is None else self.running.get(name)
        return search if search is not None and search.pool.owner == owner else None

    def begin_job(self, name: str, search: RunningSearch, params: Mapping[str, Any]) -> None:
        """Follow a job that is a model of a search: one that computes with many tasks."""
        self._with_job[name] = search
        search.jobs[name] = trial = search.trials.at(name, "")
        trial.params = params
        if (by := search.trials.settings.group) in params and by is not None:
            search.trials.put_into_group(trial, *group_of(params, by))

    def job_reported(self, name: str, loss: float, step: int, *, anew: bool = False) -> None:
        """Follow the report of a job, which was for the iteration `step`, or begins it `anew`."""
        search = self._with_job.get(name)
        if search is None or self.running.get(search.pool.name) is not search:
            return
        trials = search.trials
        trial = search.jobs[name] = trials.at(name, "", anew=anew)
        sign = -1.0 if trials.settings.maximize else 1.0
        seconds = self._engine.jobs[name].attained - trial.times.computed
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
            self._defer(self._end_if_over, search)

    def jobs_of(self, name: str) -> list[str]:
        """Return the jobs that are models of a search, and run; none of another job."""
        search = self.running.get(name)
        return [] if search is None else list(search.jobs)

    def goes_on(self, name: str) -> bool:
        """Return whether a search whose client has left goes on; it ends with its last task."""
        search = self.running.get(name)
        kept = None if search is None else self.kept.of(search)
        if search is None or kept is None or kept.gone is None or not self._is_active():
            return False
        search.outcome = search.outcome or "done"
        return search.goes_on

    def is_left(self, kept: KeptSearch) -> bool:
        """Return whether a search runs that is kept, and nobody is in its block."""
        search = kept.search
        return self.running.get(kept.name) is search and search.outcome is not None

    def hand_over(self, kept: KeptSearch, run: str, settings: SearchSettings) -> None:
        """Let a running search go on in another block, which is of another client now."""
        search = kept.search
        search.run, search.runs, search.outcome = run, [run, *search.runs], None
        search.marked = 0
        if search.trials.settings.maximize == settings.maximize:
            search.trials.settings = settings
        self.kept.hand_over(kept, search)
        self.choices.ask()

    def _end_kept(self, name: str) -> None:
        """End a search whose driver was gone for too long."""
        if (search := self.running.get(name)) is not None and search.outcome is not None:
            self._end_job(name, None)

    def forget_client(self, client: str) -> None:
        """Forget what a client has interrupted: it has left."""
        for known in [known for known in self._interrupted if known[0] == client]:
            del self._interrupted[known]

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
                self.follower.warn_of_unknown(search)
        if search is None or outcome == "failed" or not search.goes_on:
            self._end_job(name, outcome)

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
        if (search := self.running.pop(name, None)) is None:
            return
        if search.outcome == "done":
            self.follower.warn_of_silence(search, least=1)
        self.kept.end(search)
        self.ended.add(search.run, search.trials.as_dicts(curves=True))
        if search.outcome == "failed" and search.pool.tasks:
            self._interrupted[search.pool.client, name] = search.trials, search.runs
            while len(self._interrupted) > self._most_interrupted:
                del self._interrupted[oldest_of_most(self._interrupted, itemgetter(0))]
        folder = search.trials.settings.states
        ends = {trial.outcome for trial in search.trials.ended}
        lacks = search.trials.alive or search.cut_off or ends - {"done", "pruned"}
        if folder and search.outcome == "done" and not lacks:
            asyncio.get_running_loop().run_in_executor(None, remove_files, folder)
        self._leave_to_dask(search)
        self._pools.tracker.look(self._pools.sent.promises.pop(name, {}))
        self.choices.release(search)
        self.states.unpin(search.trained_on)
        self.choices.choose_now()
        if not self.running:
            self.choices.beat.stop()
            self._defer(self._stay)
            self.agents.clear()
            self.quotas.clear()

    def release_all(self) -> None:
        """Let all trials train on, and make no further choice."""
        self.choices.beat.stop()
        self.agents.tell({})
        self._defer(self._pools.let_models_move, False)
        for name, search in self.running.items():
            self.ended.add(search.run, search.trials.as_dicts(curves=True))
            self._defer(self._leave_to_dask, search)
            if search.outcome is not None:  # nobody else will end its job
                self._defer(self._end_job, name, search.outcome)
        self._defer(self.states.free_forgotten)
        self.running.clear()
        self._pools.sent.promises.clear()
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
            if ts is not None and key in self._pools.charges.seceded_at:
                self._pools.tracker.gave_up_thread(ts)

    def _stay(self) -> None:
        if not self.running:
            self._pools.let_models_move(False)
            self._pools.charges.learned.clear()

    def check(self, name: str, settings: Mapping[str, Any]) -> RunningSearch:
        """Return a search that may change these settings. Raises `InvalidSetting`."""
        if (search := self.running.get(name)) is None:
            raise no_search(name, settings)
        replace(search.trials.settings, **settings)
        return search

    def change(self, name: str, settings: Mapping[str, Any]) -> None:
        """Change settings of a search. Raises `InvalidSetting`, and then nothing was changed."""
        search = self.check(name, settings)
        search.trials.change(**settings)
        search.bound, search.seen = None, (None, 0, 0)
        self.choices.ask()

    def describe(self, name: str) -> str | None:
        """Return in words what the trials of a search do; None for another job."""
        search = self.running.get(name)
        return None if search is None else search.describe(self.choices.unstarted(search))

    def log_event(self, event: Any) -> None:
        """Hear the scheduler tell of clients and workers that leave."""
        what = event.get("action") if isinstance(event, dict) else None
        if what == LEAVES:
            self.kept.client_leaves(event["client"])
        elif what == DIES:
            self.quotas.leaves(event["worker"], dies=not event.get("expected"))

    def _end_if_over(self, search: RunningSearch) -> None:
        name = search.pool.name
        if self.running.get(name) is search and not search.goes_on:
            self._end_job(name, search.outcome)
