"""Trials of a search: models that train in one task each, and take turns on their worker."""

from dask_slaq.core.trials.ended import EndedSearches
from dask_slaq.core.trials.memory import MANY, MOVING, TARGET, Footprint, MoveSpeed, admitted
from dask_slaq.core.trials.trials import EXPLORE, SearchSettings, Trial, Trials
from dask_slaq.core.trials.turns import Account, Move, Room, Turns, choose, go_on, moves

__all__ = [
    "EXPLORE",
    "MANY",
    "MOVING",
    "TARGET",
    "Account",
    "EndedSearches",
    "Footprint",
    "Move",
    "MoveSpeed",
    "Room",
    "SearchSettings",
    "Trial",
    "Trials",
    "Turns",
    "admitted",
    "choose",
    "go_on",
    "moves",
]
