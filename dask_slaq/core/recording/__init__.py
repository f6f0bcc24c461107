"""Recordings of all events and decisions of an engine, and their exact replay."""

from dask_slaq.core.recording.events import VERSION, Event
from dask_slaq.core.recording.recalled import kind_from_dict
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.core.recording.replay import Replay

__all__ = ["VERSION", "Event", "Recorder", "Replay", "kind_from_dict"]
