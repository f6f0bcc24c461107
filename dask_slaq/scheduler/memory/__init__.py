"""What a scheduler remembers: past runs, and where jobs were that lost it or their client."""

from dask_slaq.scheduler.memory.following import last_resort
from dask_slaq.scheduler.memory.memory import MEMORY_TOPIC, Memory
from dask_slaq.scheduler.memory.safely import safely

__all__ = ["MEMORY_TOPIC", "Memory", "last_resort", "safely"]
