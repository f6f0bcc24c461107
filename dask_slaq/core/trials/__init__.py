"""Trials of a search: models that train in one task each, and take turns on their worker."""

from dask_slaq.core.search_settings import CHANGEABLE, SearchSettings
from dask_slaq.core.trials.ended import EndedSearches
from dask_slaq.core.trials.footprint import MANY, MOVING, TARGET, Footprint, MoveSpeed, admitted
from dask_slaq.core.trials.parameters import arguments, as_given, as_parameters, bounded
from dask_slaq.core.trials.past import PastModel, PastSearches, in_order
from dask_slaq.core.trials.trial import FIRST_TURN, STATE_COLORS, Trial, row_of
from dask_slaq.core.trials.trials import Trials
from dask_slaq.core.trials.turns import (
    Account,
    Destinations,
    Room,
    Turns,
    choose,
    choose_everywhere,
)
from dask_slaq.core.trials.unreported import Unreported

__all__ = [
    "CHANGEABLE",
    "FIRST_TURN",
    "MANY",
    "MOVING",
    "STATE_COLORS",
    "TARGET",
    "Account",
    "Destinations",
    "EndedSearches",
    "Footprint",
    "MoveSpeed",
    "PastModel",
    "PastSearches",
    "Room",
    "SearchSettings",
    "Trial",
    "Trials",
    "Turns",
    "Unreported",
    "admitted",
    "arguments",
    "as_given",
    "as_parameters",
    "bounded",
    "choose",
    "choose_everywhere",
    "in_order",
    "row_of",
]
