"""Choice of the intermediate results to keep in memory, from counts of how often each was computed.

KeystoneML (Sparks et al. 2017) chooses what to cache by a greedy search over the graph of results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from dask_slaq.core.errors import InvalidSetting

__all__ = ["advise", "choose", "names_of", "saved"]

#: Part of a worker's memory above which Dask writes results to disk, by default.
IN_MEMORY = 0.6
#: Part of what a choice saves that is given up for fewer results, each a line in a program.
WORTH = 0.05
#: Maximum number of layers that are considered.
MOST = 30
#: Token in the name of a layer, of which the beginning is shown.
_TOKEN = re.compile(r"-([0-9a-f]{8})[0-9a-f]{24}")


def advise(
    counts: Mapping[str, Any], limit: float | None = None, without: Collection[str] = ()
) -> dict[str, Any]:
    """Return which results to persist, by the counts of `Recomputed.counts_of`.

    `limit` is the bytes that they may take, by default 60 % of the memory of the workers. Layers of
    which a name is in `without` are not chosen. Raises `InvalidSetting` if the limit is not known.
    """
    if limit is not None and not 0 < limit < math.inf:
        raise InvalidSetting(f"the memory must be more than 0 bytes, not {limit!r}")
    if limit is None:
        if "memory" not in counts:
            raise InvalidSetting("the workers have no memory limit: give memory_limit")
        limit = IN_MEMORY * counts["memory"]
    layers = counts["layers"]
    names = {name for layer in layers if not {*names_of(name := layer["layer"])} & {*without}}
    chosen = choose(layers, limit, names)
    told: list[dict[str, Any]] = []
    for layer in layers:
        name = layer["layer"]
        told.append({**layer, "saves": saved(layers, {name}), "persist": name in chosen})
    return {
        "memory_limit": limit,
        "seconds": sum(layer["seconds"] for layer in layers),
        "saves": saved(layers, chosen),
        "bytes": sum(layer["bytes"] for layer in layers if layer["layer"] in chosen),
        "layers": sorted(told, key=lambda layer: -layer["saves"]),
    }


def names_of(layer: str) -> tuple[str, str, str]:
    """Return a layer's name, its name without the token, and with the beginning of the token.

    >>> names_of("tanh-55e7afcbb633171860985bc228efcdd1")
    ('tanh-55e7afcbb633171860985bc228efcdd1', 'tanh', 'tanh-55e7afcb')
    """
    return layer, _TOKEN.sub("", layer), _TOKEN.sub(r"-\1", layer)


def saved(layers: Sequence[Mapping[str, Any]], persisted: Collection[str]) -> float:
    """Return the core-seconds of repeats that are saved if some layers are `persisted`.

    A persisted layer is computed once. Another one is computed at most as often as it was, and as
    often as the layers that need it are computed, one after the other: those that need it in the
    same graph share it, so that the truth may be more. Repeats that are not explained by the layers
    that need it, as those after a worker was lost, remain.
    """
    times = {layer["layer"]: layer["computed"] / layer["keys"] for layer in layers}
    by_name = {layer["layer"]: layer for layer in layers}
    needed_by: dict[str, dict[str, float]] = {name: {} for name in times}
    for layer in layers:
        for name, part in layer["needs"].items():
            if name in needed_by:
                needed_by[name][layer["layer"]] = part
    now: dict[str, float] = {}
    for name in _from_last(times, needed_by):
        before, users = times[name], needed_by[name]
        caused = sum(part * times[user] for user, part in users.items())
        rest = max(by_name[name]["elsewhere"], before - caused)
        after = rest + sum(part * now.get(user, times[user]) for user, part in users.items())
        now[name] = 1.0 if name in persisted else min(before, max(1.0, after))
    return math.fsum(
        layer["seconds"] * (times[name] - now[name]) / (times[name] - 1.0)
        for name, layer in by_name.items()
        if times[name] > 1.0
    )


def _from_last(names: Iterable[str], needed_by: dict[str, dict[str, float]]) -> list[str]:
    """Return all names, each after those that need it.

    Dask's graphs have no cycles, but layers without a token in their name may seem to.
    """
    found: list[str] = []
    seen: set[str] = set()
    for first in names:
        path = [(first, iter(needed_by[first]))] if first not in seen else []
        seen.add(first)
        while path:
            name, users = path[-1]
            user = next((user for user in users if user not in seen), None)
            if user is None:
                found.append(name)
                path.pop()
            else:
                seen.add(user)
                path.append((user, iter(needed_by[user])))
    return found


def choose(
    layers: Sequence[Mapping[str, Any]], limit: float, names: Collection[str] | None = None
) -> set[str]:
    """Return the names of the layers to persist in `limit` bytes, of those in `names` or all.

    Greedily takes what saves most core-seconds per byte, given what was taken before, or most
    core-seconds if that ends better. Then results are left out as long as the rest saves 95 %: one
    that was taken early may save nothing once a later one is persisted.
    """
    sizes = {layer["layer"]: layer["bytes"] for layer in layers}
    alone = {
        name: value
        for name in sizes
        if (names is None or name in names)
        and sizes[name] <= limit
        and (value := saved(layers, {name})) > 0
    }
    candidates = sorted(alone, key=lambda name: -alone[name])[:MOST]
    plans = [_greedy(layers, limit, candidates, sizes, per_byte) for per_byte in (True, False)]
    best = max(plans, key=lambda plan: saved(layers, plan))
    total = saved(layers, best)
    for name in sorted(best, key=lambda name: alone[name]):
        if saved(layers, best - {name}) >= (1.0 - WORTH) * total:
            best -= {name}
    return best


def _greedy(
    layers: Sequence[Mapping[str, Any]],
    limit: float,
    candidates: Sequence[str],
    sizes: dict[str, float],
    per_byte: bool,
) -> set[str]:
    chosen: set[str] = set()
    value, left = 0.0, limit
    while True:
        found = []
        for name in candidates:
            if name not in chosen and sizes[name] <= left:
                gain = saved(layers, chosen | {name}) - value
                found.append((gain / max(sizes[name], 1.0) if per_byte else gain, gain, name))
        _, gain, name = max(found, default=(0.0, 0.0, ""))
        if gain <= 0:
            return chosen
        chosen.add(name)
        value, left = saved(layers, chosen), left - sizes[name]
