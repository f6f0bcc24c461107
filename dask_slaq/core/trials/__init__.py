"""Trials of a search: models that train in one task each, and take turns on their worker."""

from dask_slaq.core.trials.ended import EndedSearches
from dask_slaq.core.trials.memory import MANY, TARGET, Footprint, admitted
from dask_slaq.core.trials.trials import EXPLORE, SearchSettings, Trial, Trials
from dask_slaq.core.trials.turns import Account, Room, Turns, choose

__all__ = [
    "EXPLORE",
    "MANY",
    "TARGET",
    "Account",
    "EndedSearches",
    "Footprint",
    "Room",
    "SearchSettings",
    "Trial",
    "Trials",
    "Turns",
    "admitted",
    "choose",
]
