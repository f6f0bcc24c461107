"""Which of the repeated results to keep in memory, and a table of them.

KeystoneML (Sparks et al. 2017) chooses what to cache by a greedy search over the graph of results.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from dask.utils import format_bytes, parse_bytes
from distributed import Client, get_client

from dask_slaq.cli.text import aligned, printable
from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.lab.persisting.counting import HANDLER, RepeatedResults

LEGEND = (
    "layer: the name of a Dask collection (x.name of an array, df._name); times: that each part "
    "was computed;\nrepeats: core-seconds of all but the first time; saves: if it alone is "
    "persisted, with what only it needs."
)
#: Token in the name of a layer, of which the beginning is shown.
_TOKEN = re.compile(r"-([0-9a-f]{8})[0-9a-f]{24}")

Layers = Sequence[Mapping[str, Any]]


class Advice(dict[str, Any]):
    """What to persist; a table when printed.

    ``layers`` has a dict for each repeated one: those of `Counts.repeated`, the core-seconds that
    it ``saves`` alone, and whether to ``persist`` it. ``saves`` and ``bytes`` are those of all
    that is persisted, ``seconds`` those of all repeats, and ``memory_limit`` is in bytes.
    """

    @property
    def persist(self) -> list[str]:
        """Names of the collections to persist: ``x.name`` of an array, ``df._name``."""
        return [layer["layer"] for layer in self.get("layers", ()) if layer["persist"]]

    def __repr__(self) -> str:
        if not self.get("layers"):
            return "No result that has a key of its own was computed more than once."
        cells = [["layer", "times", "repeats/s", "saves/s", "size", ""]]
        # Maximum number of layers in a table.
        for layer in self["layers"][:12]:
            times = f"{layer['computed'] / layer['keys']:.1f}"
            numbers = [times, f"{layer['seconds']:.2f}", f"{layer['saves']:.2f}"]
            last = [format_bytes(layer["bytes"]), "persist" * layer["persist"]]
            cells.append([_shown(layer["layer"]), *numbers, *last])
        limit = format_bytes(int(self["memory_limit"]))
        summary = f"No result that saves anything fits in {limit}."
        if self.persist:
            summary = (
                f"Persist {', '.join(map(_shown, self.persist))} ({format_bytes(self['bytes'])} of "
                f"{limit}): saves about {self['saves']:.2f} of {self['seconds']:.2f} core-seconds "
                "that repeats took."
            )
        return "\n".join([*aligned(cells, left=(0, 5)), "", summary, "", LEGEND])


def _shown(layer: str) -> str:
    name = printable(_TOKEN.sub(r"-\1", layer))
    # Maximum number of characters of a name.
    most_characters = 40
    return name if len(name) <= most_characters else f"...{name[-most_characters:]}"


def advise(client: Client | None = None, memory_limit: str | float | None = None) -> Any:
    """Return which results of the programs of a client to persist, from what it computed so far.

    Parameters
    ----------
    client : distributed.Client, optional
        The current one by default.
    memory_limit : str or float, optional
        What they may take, as ``"4 GiB"`` or in bytes; by default 60 % of the memory of the
        workers, above which Dask writes results to disk.

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
    client = client or get_client()
    return client.sync(_advise, client, _bytes(memory_limit))


@contextmanager
def watch(
    client: Client | None = None, memory_limit: str | float | None = None
) -> Iterator[Advice]:
    """Count the results that a block computes more than once.

    A `RepeatedResults` is registered on the scheduler if there is none, and stays there.

    Parameters
    ----------
    client, memory_limit
        As of `advise`, which also says what is raised. The client must not be asynchronous.

    Returns
    -------
    context manager
        Of an `Advice` that is filled when the block is left.

    Examples
    --------
    >>> with watch(client) as found:  # doctest: +SKIP
    ...     model.fit(X, y)
    >>> print(found)  # doctest: +SKIP
    """
    client, limit, found = client or get_client(), _bytes(memory_limit), Advice()
    client.register_plugin(RepeatedResults())
    client.sync(_ask, client, forget=True)
    yield found
    found.update(client.sync(_advise, client, limit))


def _bytes(limit: Any) -> float | None:
    if limit is None:
        return None
    try:
        if 0 < (found := float(parse_bytes(limit))) < math.inf:
            return found
    except (AttributeError, TypeError, ValueError):
        pass
    raise InvalidSetting(f"memory_limit must be a size in bytes above 0, not {limit!r}")


async def _ask(client: Client, *, forget: bool = False) -> dict[str, Any]:
    """Return what the scheduler has counted for a client."""
    found = await getattr(client.scheduler, HANDLER)(client=client.id, forget=forget)
    if found is None:  # as Dask answers without a handler
        raise SlaqError(
            "the scheduler counts no repeated results: use persisting.watch(), register "
            "RepeatedResults(), or start it with --preload dask_slaq.lab.persisting"
        )
    return dict(found)


async def _advise(client: Client, limit: float | None) -> Advice:
    counts = await _ask(client)
    layers = counts["layers"]
    if not layers:
        return Advice()
    if limit is None:
        if counts["memory"] is None:
            raise InvalidSetting("the workers have no memory limit: give memory_limit")
        # Part of a worker's memory above which Dask writes results to disk, by default.
        limit = 0.6 * counts["memory"]
    chosen = choose(layers, limit)
    layers = [
        {**layer, "saves": saved(layers, {layer["layer"]}), "persist": layer["layer"] in chosen}
        for layer in layers
    ]
    return Advice(
        memory_limit=limit,
        seconds=sum(layer["seconds"] for layer in layers),
        saves=saved(layers, chosen),
        bytes=sum(layer["bytes"] for layer in layers if layer["layer"] in chosen),
        layers=sorted(layers, key=lambda layer: -layer["saves"]),
    )


def saved(layers: Layers, persisted: Collection[str]) -> float:
    """Return the core-seconds of repeats that are saved if some layers are `persisted`.

    Those are computed once, and others at most as often as they were, and as the layers that need
    them. Repeats that these do not explain, as after a worker was lost, remain.
    """
    times = {layer["layer"]: layer["computed"] / layer["keys"] for layer in layers}
    now: dict[str, float] = {}

    def count(layer: Mapping[str, Any], path: tuple[str, ...] = ()) -> float:
        name = layer["layer"]
        if name not in now and name not in path:  # layers without a token may seem to be a cycle
            users = [user for user in layers if name in user["needs"]]
            caused = sum(times[user["layer"]] for user in users)
            rest = max(layer["elsewhere"], times[name] - caused)
            after = rest + sum(count(user, (*path, name)) for user in users)
            now[name] = 1.0 if name in persisted else min(times[name], max(1.0, after))
        return now.get(name, times[name])

    return math.fsum(
        layer["seconds"] * (times[name] - count(layer)) / (times[name] - 1.0)
        for layer in layers
        if times[name := layer["layer"]] > 1.0
    )


def choose(layers: Layers, limit: float) -> set[str]:
    """Return the names of the layers to persist in `limit` bytes: greedily, by bytes or in all.

    Those are left out without which the rest saves 95 %.
    """
    plans = [_greedy(layers, limit, per_byte) for per_byte in (True, False)]
    best = max(plans, key=lambda plan: saved(layers, plan))
    total = saved(layers, best)
    for name in sorted(best, key=lambda name: saved(layers, {name})):
        # Part of what a choice saves that is given up for fewer results, each a line in a program.
        if saved(layers, best - {name}) >= (1.0 - 0.05) * total:
            best -= {name}
    return best


def _greedy(layers: Layers, limit: float, per_byte: bool) -> set[str]:
    chosen: set[str] = set()
    while True:
        value = saved(layers, chosen)
        left = limit - sum(layer["bytes"] for layer in layers if layer["layer"] in chosen)
        gains = {
            name: (saved(layers, chosen | {name}) - value)
            / (max(layer["bytes"], 1.0) if per_byte else 1.0)
            for layer in layers
            if (name := layer["layer"]) not in chosen and layer["bytes"] <= left
        }
        best = max(gains, key=gains.__getitem__, default="")
        if gains.get(best, 0.0) <= 0.0:
            return chosen
        chosen.add(best)
