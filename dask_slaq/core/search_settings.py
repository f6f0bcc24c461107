"""Settings of a search, which clients check before they send them, and errors about searches."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.core.search_goals import GOALS
from dask_slaq.core.settings import is_number, is_whole, require, shown

#: Settings of a search that can be changed while it runs.
CHANGEABLE = ("prune", "steps", "max_waiting", "goal")
#: Reports that every trial makes before it is compared with others: with fewer, a forecast is worse
#: than none.
EXPLORE = 4
#: Reports after which a trial may be without hope, and part of the steps, whichever are more.
PATIENCE, PATIENCE_PART = 5, 1 / 8


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
            return Pruning(patience=PATIENCE, noise=0.0)
        if isinstance(given, Mapping) and given.keys() <= {one.name for one in fields(Pruning)}:
            return Pruning(**given)
        raise InvalidSetting(
            'prune must be True, False, "bold", or a dict of slack, patience and noise, not '
            f"{shown(given)}"
        )

    def reports(self, steps: int | None) -> int:
        """Return the patience in a search of so many steps."""
        return self.patience or max(PATIENCE, math.ceil(PATIENCE_PART * (steps or 0)))


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search; see `dask_slaq.search`. Raises `InvalidSetting`."""

    goal: str = "best"
    steps: int | None = None
    maximize: bool = False
    prune: bool | str | Mapping[str, float] = False  # "bold", or the settings of `Pruning`
    max_waiting: int = 500
    trial_timeout: float | None = None  # seconds that a model may compute
    silent: float | None = 120.0  # seconds without a report after which a model counts as silent
    states: str | None = None  # folder of the files of states; None if Dask keeps them
    keep: float | None = None  # seconds for which it goes on without its driver

    def __post_init__(self) -> None:
        if not isinstance(self.goal, str) or self.goal not in GOALS:
            allowed = ", ".join(GOALS)
            raise InvalidSetting(f"goal must be one of {allowed}, not {shown(self.goal)}")
        ok = self.steps is None or is_whole(self.steps, 1)
        require("steps", self.steps, ok, "a number of steps >= 1, or None")
        require("maximize", self.maximize, isinstance(self.maximize, bool), "True or False")
        Pruning.of(self.prune)
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
