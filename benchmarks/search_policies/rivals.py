"""Policies to compare with, on threads that any model may take at any step, at no cost.

Each is written from its paper or from the library named, and is more free than there: a paused
model goes on anywhere at once.
"""

from __future__ import annotations

import bisect
import heapq
import math
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.search_policies.grids import Grid
from benchmarks.search_policies.replay import Event


class Plain:
    """Plain Dask, and the interface of a policy: models train to their end in the order given."""

    def __init__(self, grid: Grid, order: list[int]) -> None:
        self.grid, self.new = grid, deque(order)

    def next(self) -> int | None:
        """Return the model that has the next free thread; None if none wants it."""
        return self.new.popleft() if self.new else None

    def report(self, model: int, step: int, loss: float) -> bool:
        """Return whether a model keeps its thread after a step; inf is a loss that diverged."""
        return True


class Oracle(Plain):
    """Trains the models in the order of their final loss."""

    def __init__(self, grid: Grid, order: list[int]) -> None:
        super().__init__(grid, grid.ranked)


class MedianRule(Plain):
    """Ray Tune's `MedianStoppingRule` with pause: models worse than the median go on at the end."""

    def __init__(self, grid: Grid, order: list[int]) -> None:
        super().__init__(grid, order)
        self.place = {model: i for i, model in enumerate(order)}
        self.paused: list[int] = []
        self.over: set[int] = set()  # models that were paused by the rule: they train to their end
        self.losses: dict[int, list[float]] = {}

    def next(self) -> int | None:
        """Return the next model, or the first of the paused ones."""
        if self.new or not self.paused:
            return super().next()
        self.paused.sort(key=self.place.__getitem__)
        return self.paused.pop(0)

    def report(self, model: int, step: int, loss: float) -> bool:
        """Compare the best loss of a model with the median of the others' running means."""
        if model in self.over:
            return True
        self.losses.setdefault(model, []).append(min(loss, 1e30))
        others = [x for m, x in self.losses.items() if m != model and len(x) >= step]
        if len(others) < 3:
            return True
        if min(self.losses[model]) > median(math.fsum(x[:step]) / step for x in others):
            self.over.add(model)
            self.paused.append(model)
            return False
        return True


class Asha(Plain):
    """Promote from the highest rung the best third, or begin a new model (Li et al. 2020)."""

    eta = 3

    def __init__(self, grid: Grid, order: list[int]) -> None:
        super().__init__(grid, order)
        marks = [1]
        while marks[-1] * self.eta < grid.steps:
            marks.append(marks[-1] * self.eta)
        self.marks = [*marks, grid.steps]
        self.rungs: list[list[tuple[float, int]]] = [[] for _ in self.marks]
        self.promoted: set[tuple[int, int]] = set()  # rung and model
        self.at: dict[int, int] = {}  # rung that a model trains for

    def next(self) -> int | None:
        """Return a model to promote, or a new one."""
        for rung in range(len(self.marks) - 2, -1, -1):
            some = self.rungs[rung]
            for _, model in some[: len(some) // self.eta]:
                if (rung, model) not in self.promoted:
                    self.promoted.add((rung, model))
                    self.at[model] = rung + 1
                    return model
        model = super().next()
        if model is not None:
            self.at[model] = 0
        return model

    def report(self, model: int, step: int, loss: float) -> bool:
        """Pause a model at its rung."""
        rung = self.at[model]
        if step < self.marks[rung]:
            return True
        bisect.insort(self.rungs[rung], (loss, model))
        return False


class Hyperband(Plain):
    """Synchronous brackets, filled in order (Li et al. 2018), as in dask-ml and Ray Tune."""

    eta = 3

    def __init__(self, grid: Grid, order: list[int]) -> None:
        super().__init__(grid, [])
        most = int(math.log(grid.steps) / math.log(self.eta) + 1e-9)
        self.bracket: dict[int, dict[str, Any]] = {}
        left = deque(order)
        while left:
            for s in range(most, -1, -1):
                size = math.ceil((most + 1) / (s + 1) * self.eta**s)
                some = [left.popleft() for _ in range(min(size, len(left)))]
                if some:
                    marks = [max(int(grid.steps * self.eta ** -(s - i)), 1) for i in range(s)]
                    made = {"alive": some, "marks": [*marks, grid.steps], "rung": 0, "losses": {}}
                    self.bracket.update(dict.fromkeys(some, made))
                    self.new.extend(some)

    def report(self, model: int, step: int, loss: float) -> bool:
        """Pause a model at its rung, and let the best third of a complete rung go on."""
        its = self.bracket[model]
        if step < its["marks"][its["rung"]]:
            return True
        its["losses"][model] = loss
        if len(its["losses"]) == len(its["alive"]) and its["rung"] < len(its["marks"]) - 1:
            kept = sorted(its["losses"], key=its["losses"].__getitem__)
            its["alive"] = kept[: max(len(kept) // self.eta, 1)]
            its["rung"], its["losses"] = its["rung"] + 1, {}
            self.new.extendleft(reversed(its["alive"]))
        return False


RIVALS: dict[str, Callable[[Grid, list[int]], Plain]] = {
    "plain": Plain,
    "median": MedianRule,
    "asha": Asha,
    "hyperband": Hyperband,
    "oracle": Oracle,
}


def run(policy: Plain, threads: int) -> list[Event]:
    """Return the reports of the models of a policy on `threads` threads, in order of time."""
    grid, steps = policy.grid, [0] * policy.grid.models
    to_come: list[tuple[float, int, int]] = []
    events: list[Event] = []
    now, number, idle = 0.0, 0, threads

    def train(model: int) -> None:
        nonlocal number
        number += 1
        heapq.heappush(to_come, (now + grid.seconds[model], number, model))

    while True:
        while idle and (model := policy.next()) is not None:
            if steps[model] < grid.steps:
                idle -= 1
                train(model)
        if not to_come:
            return events
        now, _, model = heapq.heappop(to_come)
        steps[model] += 1
        loss = grid.losses[model][steps[model] - 1]
        done = steps[model] == grid.steps
        events.append(Event(now, model, steps[model], done))
        goes_on = policy.report(model, steps[model], loss if math.isfinite(loss) else math.inf)
        if goes_on and not done:
            train(model)
        else:
            idle += 1
