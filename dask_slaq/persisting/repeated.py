"""Scheduler plugin that counts the results of each client, and what a client asks of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any

from dask.utils import parse_bytes
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.persisting.counting import Recomputed

if TYPE_CHECKING:
    from distributed import Client, Scheduler

__all__ = ["Advice", "RepeatedResults", "advise", "dask_setup", "watch"]

#: Tasks of which it is known which client computes them, the newest of all clients.
MOST_OWNED = 100_000
#: Name of the handler of the scheduler that answers clients.
HANDLER = "repeated_results"


class RepeatedResults(SchedulerPlugin):
    """Counts, for each client, the results that are computed more than once.

    Dask forgets a result that nobody waits for, and computes it anew when it is needed again. It
    costs some five microseconds per task that ends. What repeats is told by `advise`.

    Examples
    --------
    >>> client.register_plugin(RepeatedResults())  # doctest: +SKIP
    """

    name = "repeated-results"
    idempotent = True

    async def start(self, scheduler: Scheduler) -> None:
        """Count from now on. See `SchedulerPlugin`."""
        self._scheduler, self._counts = scheduler, Recomputed(scheduler)
        self._client_of: OrderedDict[Any, str] = OrderedDict()  # by key
        scheduler.handlers[HANDLER] = self.answer

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: Collection[Any], **kwargs: Any
    ) -> None:
        """Learn whose the tasks of a new graph are. See `SchedulerPlugin`."""
        known = self._client_of
        for key in tasks:
            known.pop(key, None)  # the last one counts, and is the newest
            known[key] = client
        while len(known) > MOST_OWNED:
            known.popitem(last=False)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task that has ended. See `SchedulerPlugin`."""
        if not (start == "processing" and finish == "memory"):
            return
        if (client := self._client_of.get(key)) is not None:
            ts, ran = self._scheduler.tasks[key], kwargs.get("startstops") or ()
            self._counts.task_ended(client, ts, ran)

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Forget the counts of a client that leaves. See `SchedulerPlugin`."""
        self._counts.forget(client)
        for key in [key for key, whose in self._client_of.items() if whose == client]:
            del self._client_of[key]

    async def answer(self, client: str, forget: bool = False) -> dict[str, Any]:
        """Answer a client: its counts by now, and why nothing is counted any more.

        With `forget`, it is counted anew from now on.
        """
        counts = self._counts.counts_of(client)
        if forget:
            self._counts.forget(client)
        return {"counts": counts, "broken": self._counts.broken}


class Advice(dict[str, Any]):
    """What to persist, with the keys of `persisting.choosing.advise`; a table when printed.

    ``layers`` is empty if nothing was computed more than once.
    """

    def __repr__(self) -> str:
        if not self.get("layers"):
            return "No result that has a key of its own was computed more than once."
        from dask_slaq.persisting.table import LEGEND, lines_of

        return "\n".join([*lines_of(self), LEGEND])

    @property
    def persist(self) -> list[str]:
        """Names of the collections to persist: ``x.name`` of an array, ``df._name``."""
        return [layer["layer"] for layer in self.get("layers", ()) if layer["persist"]]


def advise(
    client: Client | None = None,
    memory_limit: str | float | None = None,
    *,
    without: Collection[str] = (),
) -> Any:
    """Return which results of the programs of a client to persist, from what it computed so far.

    Parameters
    ----------
    client : distributed.Client, optional
        The current one by default.
    memory_limit : str or float, optional
        What they may take, as ``"4 GiB"`` or in bytes; by default 60 % of the memory of the
        workers, above which Dask writes results to disk.
    without : collection of str, optional
        Names of collections that cannot be persisted, as they are made inside of a library.

    Returns
    -------
    Advice
        Or its coroutine, with an asynchronous client.

    Raises
    ------
    SlaqError
        If the scheduler has no `RepeatedResults`.
    InvalidSetting
        If the limit is no size, or is not given and the workers have none.
    """
    client = _client(client)
    return client.sync(_advise, client, _bytes(memory_limit), without)


def watch(
    client: Client | None = None,
    memory_limit: str | float | None = None,
    *,
    without: Collection[str] = (),
) -> _Watch:
    """Count the results that a block computes more than once.

    A `RepeatedResults` is registered on the scheduler if there is none, and stays there.

    Parameters
    ----------
    client, memory_limit, without
        As of `advise`, which also says what is raised.

    Returns
    -------
    context manager
        Of an `Advice` that is filled when the block is left; ``async with`` in coroutines.

    Examples
    --------
    >>> with watch(client) as found:  # doctest: +SKIP
    ...     model.fit(X, y)
    >>> print(found)  # doctest: +SKIP
    """
    return _Watch(_client(client), _bytes(memory_limit), without)


class _Watch(AbstractContextManager[Advice], AbstractAsyncContextManager[Advice]):
    def __init__(self, client: Client, limit: float | None, without: Collection[str]) -> None:
        self._client, self._limit, self._without = client, limit, without
        self._found = Advice()

    async def __aenter__(self) -> Advice:
        await _register(self._client)
        await _ask(self._client, forget=True)
        return self._found

    async def __aexit__(self, *error: object) -> None:
        if error[0] is None:
            self._found.update(await _advise(self._client, self._limit, self._without))

    def __enter__(self) -> Advice:
        self._client.sync(self.__aenter__)
        return self._found

    def __exit__(self, *error: object) -> None:
        self._client.sync(self.__aexit__, *error)


async def dask_setup(scheduler: Scheduler) -> None:
    """Count for all clients of a scheduler: ``dask scheduler --preload dask_slaq.persisting``."""
    plugin = RepeatedResults()
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)


def _client(client: Client | None) -> Client:
    from distributed import get_client

    return get_client() if client is None else client


def _bytes(limit: object) -> float | None:
    if limit is None:
        return None
    try:
        return float(parse_bytes(limit))
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidSetting(f"memory_limit must be a size in bytes, not {limit!r}") from error


async def _register(client: Client) -> None:
    register = getattr(client, "register_plugin", None) or client.register_scheduler_plugin
    await register(RepeatedResults())


async def _ask(client: Client, *, forget: bool = False) -> dict[str, Any]:
    """Return what the scheduler has counted for a client."""
    found = await getattr(client.scheduler, HANDLER)(client=client.id, forget=forget)
    if found is None:  # as Dask answers without a handler
        raise SlaqError(
            "the scheduler counts no repeated results: use persisting.watch(), register "
            "RepeatedResults(), or start it with --preload dask_slaq.persisting"
        )
    if found["broken"] is not None:
        raise SlaqError(f"repeated results are no longer counted: {found['broken']}")
    return dict(found)


async def _advise(client: Client, limit: float | None, without: Collection[str]) -> Advice:
    from dask_slaq.persisting.choosing import advise

    counts = (await _ask(client))["counts"]
    return Advice() if counts is None else Advice(advise(counts, limit, without))
