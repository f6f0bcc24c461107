"""Recordings of all events and decisions of an engine, and their exact replay."""

from dask_slaq.core.recording.past_runs import BadEvent as BadEvent
from dask_slaq.core.recording.past_runs import Event as Event
from dask_slaq.core.recording.recorder import Recorder as Recorder
from dask_slaq.core.recording.replay import Replay as Replay
