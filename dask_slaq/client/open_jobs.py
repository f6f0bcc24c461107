"""Jobs in whose blocks a client is, which the scheduler may ask to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from dask_slaq.core.settings import STEER_TOPIC

if TYPE_CHECKING:
    from distributed import Client

    from dask_slaq.client.job_block import Job

__all__ = ["find", "listen"]

# Jobs in their blocks by run, for each client.
_running: WeakKeyDictionary[Client, WeakValueDictionary[str, Job]] = WeakKeyDictionary()


def listen(client: Client, run: str, job: Job) -> None:
    """Call `job.ask_to_stop` when the scheduler asks this `run` of its block for it."""
    jobs = _running.get(client)
    if jobs is None:
        jobs = _running[client] = WeakValueDictionary()
        client.subscribe_topic(STEER_TOPIC, lambda event, jobs=jobs: _handle(jobs, event))
    jobs[run] = job


def find(client: Client, name: str) -> Job | None:
    """Return the job of this name in whose block `client` is now, or None."""
    jobs = list(_running.get(client, {}).values())
    return next((job for job in jobs if job.name == name and job.is_open), None)


def _handle(jobs: WeakValueDictionary[str, Job], event: Any) -> None:
    _, message = event
    if message.get("what") == "stop" and (job := jobs.get(message.get("run"))) is not None:
        job.ask_to_stop()
