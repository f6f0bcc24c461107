"""Recordings of all events and decisions of an engine, and their exact replay."""

from dask_slaq.core.recording.events import SETTINGS as SETTINGS
from dask_slaq.core.recording.events import VERSION as VERSION
from dask_slaq.core.recording.events import Event as Event
from dask_slaq.core.recording.recalled import kind_from_dict as kind_from_dict
from dask_slaq.core.recording.recorder import Recorder as Recorder
from dask_slaq.core.recording.replay import Replay as Replay
