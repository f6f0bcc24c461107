"""Count of the results that the programs of a client compute more than once.

A key that ends again was released and recomputed: Dask gives the same collection, built twice from
the same inputs, the same keys. Keys are counted by layer, which is a collection's name.
"""

from __future__ import annotations

import logging
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dask_slaq.core.safely import safely

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

__all__ = ["Recomputed"]

logger = logging.getLogger(__name__)

#: Maximum number of keys remembered per client. One that ends again later than that counts as new.
MOST_KEYS = 100_000
#: Maximum number of layers that are told. Up to twice as many are kept.
MOST_LAYERS = 200
#: Tasks of a layer whose dependencies are looked at, and dependencies of each.
LOOKS, WIDTH = 8, 1000
#: Name of a layer with a second token. Dask adds one where it must not reuse a key, as for a
#: collection that is an argument of a delayed function; what is computed is the same.
_RENAMED = re.compile(r"(.*-[0-9a-f]{32})-[0-9a-f]{32}")


class Layer:
    """Counts of the tasks of one layer: how often they ended, and for how many different keys.

    `seconds` are the core-seconds of the repeats, and `size` the bytes of all results. `needs` has
    the other layers by name, with how many of their keys the first tasks needed. `elsewhere` counts
    how often layers that were computed once needed this one, and `wanted` the tasks that ended
    while the client waited for their result.
    """

    __slots__ = ("computed", "elsewhere", "keys", "live", "looks", "name", "needs", "seconds",
                 "size", "wanted")  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name, self.needs = name, dict[str, int]()
        self.computed = self.keys = self.live = self.looks = self.wanted = self.size = 0
        self.seconds = self.elsewhere = 0.0

    @property
    def times(self) -> float:
        """How often a key was computed on average."""
        return self.computed / self.keys

    def part(self, needed: Layer) -> float:
        """Return which part of the keys of a layer that it needs this one needs, at most all."""
        each = self.needs[needed.name] / max(self.looks, 1)
        return min(each * self.keys / needed.keys, 1.0)


class _Client:
    """What is remembered of one client."""

    def __init__(self) -> None:
        self.keys = OrderedDict[int, Layer]()  # by hash, the one that ended last at the end
        self.layers: dict[str, Layer] = {}  # with a key in `keys`
        self.repeated: dict[str, Layer] = {}

    def find(self, name: str) -> Layer | None:
        return self.layers.get(name) or self.repeated.get(name)


class Recomputed:
    """Counts ended tasks by client and layer. Its methods never raise.

    A task costs the same however many there were, and memory is bounded.
    """

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._clients: dict[str, _Client] = {}
        self.broken: str | None = None

    def fail(self, error: Exception) -> None:
        """Count no more, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            self._clients.clear()
            logger.error("repeated results are no longer recorded: %s", self.broken, exc_info=error)

    @safely
    def task_ended(self, client: str, ts: TaskState, startstops: Iterable[Any]) -> None:
        """Count a task whose result has come into memory."""
        known = self._clients.get(client)
        if known is None:
            known = self._clients[client] = _Client()
        name, key = _identify(ts)
        layer = known.keys.pop(key, None)
        again = layer is not None
        if layer is None:
            layer = known.find(name) or Layer(name)
            known.layers[name] = layer
            layer.keys, layer.live = layer.keys + 1, layer.live + 1
            layer.size += max(ts.nbytes, 0)
        known.keys[key] = layer
        layer.computed += 1
        layer.wanted += bool(ts.who_wants)
        if layer.looks < LOOKS:
            self._look(known, layer, ts)
        if again:
            ran = [run for run in startstops if run["action"] == "compute"]
            layer.seconds += max(ran[-1]["stop"] - ran[-1]["start"], 0.0) if ran else 0.0
            if layer.name not in known.repeated:
                self._repeats(known, layer)
        elif len(known.keys) > MOST_KEYS:
            _, oldest = known.keys.popitem(last=False)  # a dict would look at all that was deleted
            oldest.live -= 1
            if not oldest.live:
                del known.layers[oldest.name]

    def _look(self, known: _Client, layer: Layer, ts: TaskState) -> None:
        """Record what a task needs."""
        layer.looks += 1
        for dependency, _ in zip(ts.dependencies, range(WIDTH), strict=False):
            name = _identify(dependency)[0]
            if name in layer.needs:
                layer.needs[name] += 1
            elif name != layer.name:
                layer.needs[name] = 1
                needed = known.find(name)
                if needed is not None and layer.name not in known.repeated:
                    needed.elsewhere += 1

    def _repeats(self, known: _Client, layer: Layer) -> None:
        """Record that a layer is no longer one that was computed once."""
        known.repeated[layer.name] = layer
        for needed in _needed(known, layer):
            needed.elsewhere -= 1
        if len(known.repeated) > 2 * MOST_LAYERS:
            for dropped in _by_seconds(known)[MOST_LAYERS:]:
                _drop(known, dropped)

    def forget(self, client: str) -> None:
        """Forget what a client has computed."""
        self._clients.pop(client, None)

    @safely
    def counts_of(self, client: str) -> dict[str, Any] | None:
        """Return what a client has computed more than once; None if nothing repeats.

        ``layers``: for each, its ``layer`` (a Dask collection's name), its ``computed`` tasks,
        different ``keys``, core-``seconds`` of the repeats, ``bytes`` of all results, the layers
        that it ``needs``, with the part of their keys, and how often it was needed ``elsewhere``
        per key, by the client or by layers that are not listed. ``memory``: bytes of all workers.
        """
        known = self._clients.get(client)
        if known is None or not known.repeated:
            return None
        for dropped in _by_seconds(known)[MOST_LAYERS:]:
            _drop(known, dropped)
        limits = [ws.memory_limit for ws in self._scheduler.workers.values()]
        layers = [
            {
                "layer": layer.name,
                "computed": layer.computed,
                "keys": layer.keys,
                "seconds": layer.seconds,
                "bytes": layer.size,
                "needs": {
                    needed.name: layer.part(needed)
                    for needed in _needed(known, layer)
                    if needed.name in known.repeated
                },
                "elsewhere": max(layer.elsewhere, 0.0) + layer.wanted / layer.keys,
            }
            for layer in _by_seconds(known)
        ]
        # A worker without a limit may use all memory of its machine, which is not known.
        memory = {"memory": sum(limits)} if limits and all(limits) else {}
        return {"layers": layers, **memory}


def _identify(ts: TaskState) -> tuple[str, int]:
    """Return the name of a task's layer, and a number that is the same if the result is."""
    key, name = ts.key, ts.group.name
    if isinstance(key, str):
        renamed = _RENAMED.fullmatch(key)
        return name, hash(renamed[1] if renamed else key)
    if renamed := _RENAMED.fullmatch(name):
        name = renamed[1]
    return name, hash((name, *key[1:])) if isinstance(key, tuple) else hash(key)


def _by_seconds(known: _Client) -> list[Layer]:
    return sorted(known.repeated.values(), key=lambda layer: -layer.seconds)


def _needed(known: _Client, layer: Layer) -> list[Layer]:
    """Return the layers that one needs, as far as they are known."""
    found = (known.find(name) for name in layer.needs)
    return [needed for needed in found if needed is not None]


def _drop(known: _Client, layer: Layer) -> None:
    """Forget that a layer repeats; what it needs is still needed as often."""
    del known.repeated[layer.name]
    for needed in _needed(known, layer):
        needed.elsewhere += layer.times * layer.part(needed)
    layer.needs, layer.looks = {}, LOOKS
