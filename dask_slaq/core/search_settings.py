"""Settings of a search, which clients check before they send them, and errors about searches."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from dask_slaq.core.errors import BROKEN, InvalidSetting, SlaqError
from dask_slaq.core.settings import MOST_ITERATIONS, is_number, is_whole, require, shown

#: Settings of a search that can be changed while it runs.
CHANGEABLE = ("prune", "steps", "max_waiting", "goal")
#: Reports of a trial with fewer of which a forecast is worse than none.
FEWEST_REPORTS = 4
#: Reports after which a trial may be without hope, or an eighth of the steps if that is more.
PATIENCE_REPORTS = 5


@dataclass(frozen=True)
class Pruning:
    """When a trial is without hope: after `patience` reports, if better models are ready.

    That is, if the lowest final loss in its reach is above theirs by more than the part `slack` of
    the distance from its start to these, and by a quarter of `noise` standard deviations.
    """

    slack: float = 0.0
    patience: int | None = None  # an eighth of the steps, at least 5
    noise: float = 4.0

    def __post_init__(self) -> None:
        for name in ("slack", "noise"):
            if not (is_number(value := getattr(self, name)) and 0 <= value < math.inf):
                raise InvalidSetting(f"{name} of prune must be a number >= 0, not {shown(value)}")
        patience = self.patience
        ok = patience is None or is_whole(patience, 1)
        require("patience of prune", patience, ok, "a number of reports >= 1")

    @staticmethod
    def of(given: object) -> Pruning:
        """Return the pruning that the setting `prune` describes."""
        if isinstance(given, bool):
            return Pruning()
        if given == "bold":
            return Pruning(patience=PATIENCE_REPORTS, noise=0.0)
        if isinstance(given, Mapping) and given.keys() <= {one.name for one in fields(Pruning)}:
            return Pruning(**given)
        raise InvalidSetting(
            'prune must be True, False, "bold", or a dict of slack, patience and noise, not '
            f"{shown(given)}"
        )

    def reports(self, steps: int | None) -> int:
        """Return the patience in a search of so many steps."""
        return self.patience or max(PATIENCE_REPORTS, math.ceil((steps or 0) / 8))


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search; see `dask_slaq.search`. Raises `InvalidSetting`."""

    goal: str = "best"
    steps: int | None = None
    maximize: bool = False
    prune: bool | str | Mapping[str, float] = False  # "bold", or the settings of `Pruning`
    group: str | None = None  # parameter by which models are compared apart
    max_waiting: int = 500
    trial_timeout: float | None = None  # seconds that a model may compute
    silent: float | None = 120.0  # seconds without a report after which a model counts as silent
    states: str | None = None  # folder of the files of states; None if Dask keeps them
    keep: float | None = None  # seconds for which it goes on without its driver

    def __post_init__(self) -> None:
        if not isinstance(self.goal, str) or self.goal not in GOALS:
            allowed = ", ".join(GOALS)
            raise InvalidSetting(f"goal must be one of {allowed}, not {shown(self.goal)}")
        ok = self.steps is None or (is_whole(self.steps, 1) and self.steps <= MOST_ITERATIONS)
        require("steps", self.steps, ok, "a number of steps from 1 to 1e12, or None")
        require("maximize", self.maximize, isinstance(self.maximize, bool), "True or False")
        Pruning.of(self.prune)
        ok = self.group is None or (isinstance(self.group, str) and bool(self.group))
        allowed = "a parameter's name, a callable of the parameters, or None"
        require("group", self.group, ok, allowed)
        for name in ("trial_timeout", "silent", "keep"):
            limit = getattr(self, name)
            ok = limit is None or (is_number(limit) and 0 < limit < math.inf)
            require(name, limit, ok, "a number of seconds > 0, or None")
        ok = self.states is None or (isinstance(self.states, str) and bool(self.states))
        require("states", self.states, ok, "a path or None")
        ok = is_whole(self.max_waiting, 0)
        require("max_waiting", self.max_waiting, ok, "a number of models >= 0")

    @property
    def prunes(self) -> bool:
        """Whether trials without hope end."""
        return self.prune is not False

    @cached_property
    def pruning(self) -> Pruning:
        """When a trial is without hope."""
        return Pruning.of(self.prune)


def no_search(name: str, settings: Mapping[str, Any]) -> InvalidSetting:
    """Return the error that a job has no settings of a search."""
    return InvalidSetting(f"{shown(name)} is not a search: it has no {', '.join(settings)}")


def search_is_over() -> SlaqError:
    """Return the error that no model is trained on any more."""
    return SlaqError("the search is over: train models on inside of its block")


class Model(NamedTuple):
    """What a goal is told of a model that has reported. Losses are lower for better models.

    It is the `number`-th of its search, and has made `step` of `steps` steps, None if the search
    does not say how many. `losses` are known `at` some steps, as long curves are thinned; `loss` is
    the latest one. Its final loss is `predicted`, nan without a forecast, in four of five cases
    from `low` to `high`. It has computed for `seconds`, and has `ended` as in the table of the
    search (``"done"``, ``"pruned"``, ``"stopped"``, ``"failed"``), or ``""``.
    """

    number: int
    step: int
    steps: int | None
    at: Sequence[int]
    losses: Sequence[float]
    loss: float
    predicted: float
    low: float
    high: float
    seconds: float
    ended: str


class Judgement(NamedTuple):
    """What a goal says of some models, in their order.

    Who has the lowest of the `scores` trains first, and one with inf after all others. `hopeless`
    are the positions of those that a search that prunes may end.
    """

    scores: Sequence[float]
    hopeless: Collection[int] = ()


class Goal(Protocol):
    """What a search is for: called with all models that have reported, whenever turns are given.

    It is asked of one search at a time, in the order of time, and may remember what it was told.
    """

    def __call__(self, models: Sequence[Model]) -> Judgement:
        """Return the scores of the models, and which are without hope."""
        ...


#: Goals that are built in.
OWN_GOALS = ("best", "all")
#: What makes a goal, by name; None for those that are built in.
GOALS: dict[str, Callable[[], Goal | None] | None] = dict.fromkeys(OWN_GOALS)


def add_goal(name: str, make: Callable[[], Goal | None]) -> None:
    """Let searches have a goal of this name. Raises `InvalidSetting` for a name of ours."""
    if GOALS.get(name, make) is None:
        raise InvalidSetting(f"{name!r} is a goal of dask_slaq itself: choose another name")
    GOALS[name] = make


def is_unknown(goal: object) -> bool:
    """Return whether a goal is named that nobody has added so far."""
    return isinstance(goal, str) and goal not in GOALS


def goal_of(name: str) -> Goal | None:
    """Return a new goal by its name; None for one that is built in, or cannot be made."""
    make = GOALS[name]
    return None if make is None else make()


class GuardedGoal:
    """Goal of somebody else, which orders models as ``"best"`` does once it breaks."""

    def __init__(self, goal: Goal | None, tell: Callable[[str], object]) -> None:
        self._goal, self._tell = goal, tell
        self.broken: str | None = None

    def __call__(self, models: Sequence[Model]) -> Judgement:
        """Return what the goal says if that keeps the rules, or the predicted final losses."""
        if self.broken is None and self._goal is not None:
            try:
                return _checked(self._goal(models), len(models))
            except BROKEN as error:
                self.broken = f"{type(error).__name__}: {error}"
                self._tell(self.broken)
        return Judgement([model.predicted for model in models])


def _checked(found: Any, n: int) -> Judgement:
    scores, hopeless = found
    scores, hopeless = [float(score) for score in scores], set(map(_position, hopeless))
    if len(scores) != n:
        raise ValueError(f"{len(scores)} scores for {n} models")
    if any(math.isnan(score) for score in scores):
        raise ValueError("a score is nan")
    if not hopeless <= set(range(n)):
        raise ValueError(f"hopeless are positions from 0 to {n - 1}, not {sorted(hopeless)}")
    return Judgement(scores, hopeless)


def _position(at: Any) -> int:
    """Return a position as an int. A mask is none: its values count as 0 and 1."""
    if isinstance(at, bool) or not hasattr(at, "__index__"):
        raise TypeError(f"hopeless are positions, not {at!r}")
    return operator.index(at)
