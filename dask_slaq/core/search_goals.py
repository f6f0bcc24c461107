"""Goals of a search: in which order its models train, and which are without hope.

``"best"`` and ``"all"`` are built into `dask_slaq.core.trials`; others are added by name.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, Protocol

from dask_slaq.core.errors import BROKEN, InvalidSetting


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
