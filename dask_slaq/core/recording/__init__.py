"""Recordings of all events and decisions of an engine, and their exact replay."""

from dask_slaq.core.recording.events import VERSION as VERSION
from dask_slaq.core.recording.events import Event as Event
from dask_slaq.core.recording.recorder import Recorder as Recorder
from dask_slaq.core.recording.replay import Replay as Replay
