"""Searches: which of their trials train on each worker, and which wait in their report."""

from dask_slaq.scheduler.trials.follower import TrialMessage as TrialMessage
from dask_slaq.scheduler.trials.searches import Searches as Searches
