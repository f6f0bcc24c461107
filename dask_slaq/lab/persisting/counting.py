"""Scheduler plugin that counts the results that the programs of each client compute more than once.

A key that ends again was released and recomputed: Dask gives the same collection, built twice from
the same inputs, the same keys. Keys are counted by layer, which is a collection's name.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import TaskState

#: Maximum number of keys remembered per client. One that ends again later than that counts as new.
MOST_KEYS = 100_000
#: Name of the handler of the scheduler that answers clients.
HANDLER = "repeated_results"
#: Name of a layer with a second token. Dask adds one where it must not reuse a key, as for a
#: collection that is an argument of a delayed function; what is computed is the same.
_RENAMED = re.compile(r"(.*-[0-9a-f]{32})-[0-9a-f]{32}")


class Layer:
    """Counts of the tasks of one layer: how often they ended, and for how many different keys.

    `needs` names other layers; `wanted` counts tasks that a client waited for, `live` known keys.
    """

    __slots__ = ("computed", "keys", "live", "looks", "name", "needs", "seconds", "size", "wanted")

    def __init__(self, name: str) -> None:
        self.name, self.needs, self.seconds = name, set[str](), 0.0
        self.computed = self.keys = self.live = self.looks = self.wanted = self.size = 0

    @property
    def times(self) -> float:
        """How often a key was computed on average."""
        return self.computed / self.keys


class Counts:
    """What is remembered of one client. Memory is bounded, and a task always costs the same."""

    def __init__(self) -> None:
        self.keys = OrderedDict[int, Layer]()  # by hash, the one that ended last at the end
        self.layers: dict[str, Layer] = {}  # with a key in `keys`

    def task_ended(self, ts: TaskState, startstops: Iterable[Any]) -> None:
        """Count a task whose result has come into memory."""
        name, key = _identify(ts)
        layer = self.keys.pop(key, None)
        if layer is not None:
            ran = [run for run in startstops if run["action"] == "compute"]
            layer.seconds += max(ran[-1]["stop"] - ran[-1]["start"], 0.0) if ran else 0.0
        else:
            layer = self.layers.setdefault(name, Layer(name))
            layer.keys, layer.live = layer.keys + 1, layer.live + 1
            layer.size += max(ts.nbytes, 0)
        self.keys[key] = layer
        layer.computed += 1
        layer.wanted += bool(ts.who_wants)
        # Tasks of a layer whose dependencies are looked at, and dependencies of each.
        looks, width = 8, 1000
        if layer.looks < looks:
            layer.looks += 1
            some = zip(ts.dependencies, range(width), strict=False)
            layer.needs |= {_identify(dependency)[0] for dependency, _ in some} - {name}
        if len(self.keys) > MOST_KEYS:
            _, oldest = self.keys.popitem(last=False)  # a dict would look at all that was deleted
            oldest.live -= 1
            if not oldest.live:
                del self.layers[oldest.name]

    def repeated(self) -> list[dict[str, Any]]:
        """Return a dict for each layer that was computed more than once, most seconds first.

        It has its name as ``layer`` (a Dask collection's), ``computed`` tasks, different ``keys``,
        core-``seconds`` of the repeats, ``bytes`` of all results, the names of the repeated layers
        that it ``needs``, and how often it was needed ``elsewhere`` per key: by the client, or by
        layers that were computed once.
        """
        again = [layer for layer in self.layers.values() if layer.computed > layer.keys]
        again.sort(key=lambda layer: -layer.seconds)
        # Maximum number of layers that are told, those with the longest repeats.
        found = {layer.name: layer for layer in again[:30]}
        elsewhere = {name: layer.wanted / layer.keys for name, layer in found.items()}
        for layer in self.layers.values():
            if layer.name not in found:
                for name in layer.needs & found.keys():
                    elsewhere[name] += layer.times
        return [
            {
                "layer": name,
                "computed": layer.computed,
                "keys": layer.keys,
                "seconds": layer.seconds,
                "bytes": layer.size,
                "needs": sorted(layer.needs & found.keys()),
                "elsewhere": elsewhere[name],
            }
            for name, layer in found.items()
        ]


def _identify(ts: TaskState) -> tuple[str, int]:
    """Return the name of a task's layer, and a number that is the same if the result is."""
    key, name = ts.key, ts.group.name
    if isinstance(key, str):
        renamed = _RENAMED.fullmatch(key)
        return name, hash(renamed[1] if renamed else key)
    if renamed := _RENAMED.fullmatch(name):
        name = renamed[1]
    return name, hash((name, *key[1:])) if isinstance(key, tuple) else hash(key)


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
        self._scheduler = scheduler
        self._counts: dict[str, Counts] = {}  # by client
        self._client_of: OrderedDict[Any, str] = OrderedDict()  # by key, the newest of all clients
        scheduler.handlers[HANDLER] = self.answer

    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: Collection[Any], **kwargs: Any
    ) -> None:
        """Learn whose the tasks of a new graph are. See `SchedulerPlugin`."""
        known = self._client_of
        for key in tasks:
            known.pop(key, None)  # the last one counts, and is the newest
            known[key] = client
        while len(known) > MOST_KEYS:
            known.popitem(last=False)

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task that has ended. See `SchedulerPlugin`."""
        if not (start == "processing" and finish == "memory"):
            return
        if (client := self._client_of.get(key)) is not None:
            counts = self._counts.setdefault(client, Counts())
            counts.task_ended(self._scheduler.tasks[key], kwargs.get("startstops") or ())

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Forget the counts of a client that leaves. See `SchedulerPlugin`."""
        self._counts.pop(client, None)
        for key in [key for key, whose in self._client_of.items() if whose == client]:
            del self._client_of[key]

    async def answer(self, client: str, forget: bool = False) -> dict[str, Any]:
        """Return a client's ``layers`` and all ``memory`` in bytes; `forget` its counts."""
        counts = self._counts.pop(client, None) if forget else self._counts.get(client)
        limits = [ws.memory_limit for ws in self._scheduler.workers.values()]
        # A worker without a limit may use all memory of its machine, which is not known.
        memory = sum(limits) if limits and all(limits) else None
        return {"layers": [] if counts is None else counts.repeated(), "memory": memory}


async def dask_setup(scheduler: Scheduler) -> None:
    """Count for all clients of a scheduler that preloads ``dask_slaq.lab.persisting``."""
    plugin = RepeatedResults()
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)
