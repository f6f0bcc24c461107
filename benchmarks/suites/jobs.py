"""Pytest plugin that runs everything a library's tests compute through a client as a job.

Each client gets two jobs: its own, and a second one without tasks. With two jobs, the scheduler's
plugin holds and binds the tasks of the test. Schedulers load that plugin through Dask's
configuration.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import suppress
from typing import Any

from distributed import Client

import dask_slaq
from benchmarks.suites.observed import seen
from dask_slaq.client import Job
from dask_slaq.client.connection import request

_jobs: dict[str, list[Job]] = {}
_library = {name: vars(Client)[name] for name in ("start", "__await__", "_close", "close")}


def pytest_configure(config: Any) -> None:
    """Patch `Client` to open and close jobs."""
    seen.update(jobs=0, held=0, unanswered=0, failed=[])
    methods = {"start": start, "__await__": wait, "_close": aclose, "close": close}
    for name, method in methods.items():
        setattr(Client, name, method)


def pytest_unconfigure(config: Any) -> None:
    """Restore `Client`."""
    for name, method in _library.items():
        setattr(Client, name, method)


def start(self: Client, **kwargs: Any) -> None:
    """Connect a synchronous client, and open its jobs in the thread that made it."""
    _library["start"](self, **kwargs)
    if not self.asynchronous:
        for job in _new_jobs(self):
            job.__enter__()


def wait(self: Client) -> Generator[Any, Any, Client]:
    """Connect an asynchronous client, and open its jobs in the context that awaits it."""
    yield from _library["__await__"](self)
    for job in _new_jobs(self):
        yield from job.__aenter__().__await__()
    return self


def close(self: Client, *args: Any, **kwargs: Any) -> Any:
    """Close the jobs of a synchronous client, and then the client."""
    if not self.asynchronous and self.id in _jobs:
        self.sync(_look, self, callback_timeout=30)
        for job in _ended(self):
            with suppress(ValueError):  # closed in a different context than it was opened in
                job.__exit__()
    return _library["close"](self, *args, **kwargs)


async def aclose(self: Client, *args: Any, **kwargs: Any) -> None:
    """Close the jobs of a client if they are still open, and then the client."""
    if self.id in _jobs:
        await _look(self)
        for job in _ended(self):
            with suppress(ValueError):
                await job.__aexit__()
    await _library["_close"](self, *args, **kwargs)


def _new_jobs(client: Client) -> list[Job]:
    """Make the jobs of a new client. The last one gets the tasks and the losses."""
    if client.id in _jobs or client.id.startswith("Client-worker"):
        return []
    test = os.environ.get("PYTEST_CURRENT_TEST", "").split(" ")[0]
    names = (f"beside {client.id}", f"{test} {client.id}")
    _jobs[client.id] = [dask_slaq.job(name, client=client) for name in names]
    return _jobs[client.id]


def _ended(client: Client) -> list[Job]:
    jobs = _jobs.pop(client.id)
    seen["jobs"] += 1
    seen["losses"] += jobs[-1].iteration
    return jobs[::-1]


async def _look(client: Client) -> None:
    """Record what the scheduler did with the tasks of a client."""
    try:
        status = await request(client, "slaq_status")
        bindings = await request(client, "slaq_bindings")
    except Exception:  # the test may have closed its scheduler already
        seen["unanswered"] += 1
        return
    mine = _jobs[client.id][-1].name
    if status["failed"]:
        seen["failed"].append(f"{mine}: {status['failed']}")
    seen["held"] += sum(reason != "passed" for *_, reason in bindings)
