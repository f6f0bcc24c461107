"""Trials of a search: models that train in one task each, and take turns on their worker."""

from dask_slaq.core.trials.account import Account
from dask_slaq.core.trials.settings import SearchSettings
from dask_slaq.core.trials.trials import EXPLORE, Trial, Trials
from dask_slaq.core.trials.turns import Room, Turns, choose

__all__ = ["EXPLORE", "Account", "Room", "SearchSettings", "Trial", "Trials", "Turns", "choose"]
