"""Recordings of all events and decisions of an engine, and their exact replay."""

from typing import TYPE_CHECKING

from dask_slaq.core.later import later

if TYPE_CHECKING:
    from dask_slaq.core.recording.events import SETTINGS as SETTINGS
    from dask_slaq.core.recording.events import VERSION as VERSION
    from dask_slaq.core.recording.events import Event as Event
    from dask_slaq.core.recording.recalled import kind_from_dict as kind_from_dict
    from dask_slaq.core.recording.recorder import Recorder as Recorder
    from dask_slaq.core.recording.replay import Replay as Replay

# A scheduler without an event log loads none of this, and one with it no replay.
__getattr__ = later(
    __name__,
    {
        "events": ("SETTINGS", "VERSION", "Event"),
        "recalled": ("kind_from_dict",),
        "recorder": ("Recorder",),
        "replay": ("Replay",),
    },
)
