"""Replays of a grid under the rules of `slaq.search`: its own `Trials` and `choose` decide.

Workers, agents and the queue of the scheduler are copies, small enough to follow: a model begins
where Dask would begin it, reports, and waits or goes on as the last turns say, which arrive `LAG`
mean steps after they were asked for. Times are in mean steps of the grid.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from benchmarks.search_policies.grids import Grid
from dask_slaq.core.forecast import Forecast, LossPredictor
from dask_slaq.core.trials import (
    Destinations,
    PastModel,
    SearchSettings,
    Trial,
    Trials,
    TrialState,
    Turns,
    WorkerQuota,
    choose_everywhere,
)

#: Mean steps until a decision arrives at the workers.
LAG = 0.3
#: What a forecast says of each model.
COLUMNS = tuple(one.name for one in fields(Forecast) if one.name != "horizons")
#: Tasks that Dask sends to a worker, per thread.
SATURATION = 1.1


class Event(NamedTuple):
    """Report of a model: its `step` of this number ended at a time. `done` if it was its last."""

    time: float
    model: int
    step: int
    done: bool


class Forecasts:
    """Forecasts of the models of a grid after each report.

    They depend on the model's own curve alone, so they are made once for all orders.
    """

    def __init__(self, grid: Grid) -> None:
        predictor, names = LossPredictor(), [str(m) for m in range(grid.models)]
        for name in names:
            predictor.add(name)
        if min(map(min, grid.losses)) < 0:
            predictor.unbound(names)  # a search does once one reports such a loss
        found: dict[str, list[Any]] = {}
        for step in range(grid.steps + 1):
            if step:
                for name, curve in zip(names, grid.losses, strict=True):
                    if math.isfinite(curve[step - 1]):
                        predictor.report(name, curve[step - 1])
                predictor.fit()
            forecast, (low, high) = predictor.forecast(names), predictor.band(names)
            rows = {name: getattr(forecast, name) for name in COLUMNS} | {"low": low, "high": high}
            for name, row in rows.items():
                found.setdefault(name, []).append(row)
        self._of = {name: np.stack(rows, axis=1) for name, rows in found.items()}
        self._any = forecast

    def at(self, models: list[int], steps: list[int]) -> tuple[Forecast, Any, Any]:
        """Return the forecasts of some models, each after a number of steps, and their bands."""
        found = {name: rows[models, steps] for name, rows in self._of.items()}
        low, high = found.pop("low"), found.pop("high")
        return replace(self._any, **found), low, high


class _Predictor:
    """Stands for the `LossPredictor` of a `Trials`, and looks forecasts up."""

    def __init__(self, forecasts: Forecasts, steps: list[int]) -> None:
        self._forecasts, self._steps = forecasts, steps
        self.model: dict[str, int] = {}  # of each trial

    def add(self, name: str) -> None:
        """Follow a trial: nothing to do."""

    def remove(self, name: str) -> None:
        """Forget a trial: nothing to do."""

    def unbound(self, names: list[str]) -> None:
        """Let losses fall below zero: they did from the beginning."""

    def report(self, name: str, loss: float) -> None:
        """Record a loss: it is known."""

    def fit(self) -> int:
        """Make forecasts: they are made."""
        return 0

    def forecast(self, names: list[str]) -> Forecast:
        """Return the forecasts of some trials."""
        return self._at(names)[0]

    def band(self, names: list[str]) -> tuple[Any, Any]:
        """Return their bands."""
        return self._at(names)[1:]

    def _at(self, names: list[str]) -> tuple[Forecast, Any, Any]:
        models = [self.model[name] for name in names]
        return self._forecasts.at(models, [self._steps[m] for m in models])


class _Worker:
    """Worker with its agent."""

    def __init__(self, name: str, threads: int) -> None:
        self.name, self.threads, self.free = name, threads, threads
        self.tasks: set[int] = set()  # that Dask counts there: those that wait in a report are not
        self.back: deque[int] = deque()  # of these, those that go on as soon as a thread is free
        self.ready: deque[int] = deque()  # and those that begin then
        self.begun: set[int] = set()  # that have not reported here
        self.slots: set[int] = set()  # models that have reported here, and have not ended
        self.waits: set[int] = set()  # of these, those that wait in a report
        self.guests: set[int] = set()  # of `begun`, those that go on from elsewhere
        self.explored_here: set[int] = set()  # that wait without a place in the order yet
        self.turns = Turns([], 10**9, 0, [], [])

    def held(self) -> set[int]:
        """Return the models that may not train."""
        alive = [m for m in self.turns.order if m in self.slots]
        found = set(alive[self.turns.width :]) | (self.explored_here & self.slots)
        return found - self.pruned()  # type: ignore[arg-type]

    def pruned(self) -> set[int]:
        """Return the models that should end."""
        return {key for key, *_ in self.turns.pruned}  # type: ignore[misc]


class Replay:
    """One search on a grid, whose models begin in some `order`.

    Parameters
    ----------
    grid, forecasts, order
        Models, their forecasts, and the order in which they are submitted.
    workers, threads : int
        Number of workers, and threads of each.
    leave : bool
        Whether models report their state: they may leave their worker, at no cost.
    past : iterable of PastModel
        Models of an earlier search; their parameter ``model`` is the number of each.
    settings
        Further `SearchSettings`.
    """

    def __init__(
        self, grid: Grid, forecasts: Forecasts, order: list[int], *, workers: int, threads: int,
        leave: bool = False, past: Iterable[PastModel] = (), **settings: Any,
    ) -> None:  # fmt: skip
        self._grid, self._leave = grid, leave
        self._step = [0] * grid.models
        chosen = SearchSettings(**{"steps": grid.steps, **settings})
        self.trials = self._trials = Trials(chosen, past=past)
        self._predictor = _Predictor(forecasts, self._step)
        self._trials.scores.predictor = self._predictor  # type: ignore[assignment]
        self._workers = {f"w{i:02d}": _Worker(f"w{i:02d}", threads) for i in range(workers)}
        self._queue, self._events = deque(order), []
        self._to_come: list[tuple[float, int, str, Any]] = []
        self._number, self._now, self._asked = 0, 0.0, False

    def run(self) -> list[Event]:
        """Return the reports of all models, in order of time."""
        self._assign()
        while self._to_come:
            self._now, _, what, given = heapq.heappop(self._to_come)
            if what == "choose_everywhere":
                self._decide()
            else:
                self._report(*given)
        if len(self._trials.ended) != self._grid.models:
            raise AssertionError(f"{self._grid.name}: a model waits for ever")
        return self._events

    def _at(self, after: float, what: str, given: Any = None) -> None:
        self._number += 1
        heapq.heappush(self._to_come, (self._now + after, self._number, what, given))

    def _ask(self) -> None:
        if not self._asked:
            self._asked = True
            self._at(LAG, "choose_everywhere")

    def _assign(self) -> None:
        """Send queued tasks to the workers with the most room, as Dask does."""
        while self._queue:
            worker = min(self._workers.values(), key=lambda w: (len(w.tasks), w.name))
            if len(worker.tasks) >= math.ceil(SATURATION * worker.threads - 1e-9):
                return
            self._send(worker, self._queue.popleft())

    def _send(self, worker: _Worker, model: int) -> None:
        for some in (worker.tasks, worker.begun):
            some.add(model)
        worker.ready.append(model)
        self._fill(worker)
        self._ask()

    def _fill(self, worker: _Worker) -> None:
        while worker.free and (some := worker.back or worker.ready):
            worker.free -= 1
            self._train(worker, some.popleft())

    def _train(self, worker: _Worker, model: int) -> None:
        self._at(self._grid.seconds[model], "step", (worker, model))

    def _free(self, worker: _Worker, model: int) -> None:
        """Let a model give up its thread."""
        worker.tasks.discard(model)
        worker.free += 1
        self._assign()
        self._fill(worker)
        self._ask()

    def _report(self, worker: _Worker, model: int) -> None:
        grid = self._grid
        self._step[model] += 1
        step = self._step[model]
        trial = self._trials.at(model, worker.name)
        self._predictor.model[trial.name] = model
        trial.params = {"model": model}
        if trial.state.migrates:
            self._trials.arrive(trial, trial.reports)
        first = model in worker.begun
        worker.begun.discard(model)
        worker.guests.discard(model)
        worker.slots.add(model)
        self._trials.report(trial, [grid.losses[model][step - 1]], grid.seconds[model])
        if self._leave:
            self._trials.can_move(trial, 0, 1.0)
            trial.checkpoint.reports = trial.reports
        done = step == grid.steps
        self._events.append(Event(self._now, model, step, done))
        if done or model in worker.pruned():
            self._trials.end(model, "done" if done else "pruned")
            worker.slots.discard(model)
            self._settle(worker)
            self._free(worker, model)
            return
        turns, held = worker.turns, worker.held()
        known = model in held or model in turns.order
        if turns.explored > 0 and not known and step >= trial.turn.first:
            turns.explored -= 1
            worker.explored_here.add(model)
            held.add(model)
        if model in held:
            trial.become(TrialState.WAITS)
            worker.waits.add(model)
            self._free(worker, model)
            return
        self._train(worker, model)
        if first or not trial.in_turn:
            self._ask()

    def _settle(self, worker: _Worker) -> None:
        """Let models go on that need not wait any longer, or leave, or end in their report."""
        for model in sorted(m for m in worker.waits if m in worker.pruned()):
            worker.waits.discard(model)
            worker.slots.discard(model)
            self._trials.end(model, "pruned")
        held = worker.held()
        for model in sorted(worker.waits):
            trial = self._trials.alive[model]
            if model in worker.turns.leave:
                worker.waits.discard(model)
                worker.slots.discard(model)
                self._trials.leave(model)
                self._ask()
            elif model not in held:
                worker.waits.discard(model)
                self._trials.begin_turn(trial)
                worker.tasks.add(model)
                worker.back.append(model)
                self._ask()
        self._fill(worker)

    def _decide(self) -> None:
        self._asked = False
        trials, workers = self._trials, self._workers
        quotas = {
            w.name: WorkerQuota(w.threads, len(w.begun - w.guests), guests=len(w.guests))
            for w in workers.values()
            if w.begun or w.slots or self._leave
        }
        places = Destinations(lambda key: ()) if self._leave else None
        chosen, some = choose_everywhere(trials, quotas, len(self._queue), places)
        for name, turns in chosen.items():
            workers[name].turns = turns
            workers[name].explored_here.clear()
        for key, worker in some:
            trial: Trial = trials.alive[key]
            trial.become(TrialState.SENT)
            trial.worker = worker
            workers[worker].guests.add(key)  # type: ignore[arg-type]
            self._send(workers[worker], key)  # type: ignore[arg-type]
        for name in chosen:
            self._settle(workers[name])
