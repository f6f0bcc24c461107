"""Workers that are not alike: which tasks wait for faster ones."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from dask_slaq.core.dispatch.constants import CLEARLY, LOOKED_AT
from dask_slaq.core.dispatch.ready import is_plain

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.contender import Contender
    from dask_slaq.core.dispatch.decide import Turn
    from dask_slaq.core.dispatch.order import Order
    from dask_slaq.core.dispatch.places import Place
    from dask_slaq.core.dispatch.ready import Entry


def ends_sooner_elsewhere(
    order: Order, turn: Turn, pool: Contender, entry: Entry, place: Place
) -> bool:
    """Return whether faster workers would end a task sooner than a slow one with a slot.

    They compute what comes before it first: ready tasks of its job, and of jobs before. It is not
    left to them for longer than the slow worker takes.
    """
    like, factor = entry.like, order.speeds.factor(place.address, entry.name)
    if factor <= 1.0 or not like.known or pool.gang or not is_plain(entry.kind) or not order.lend:
        return False
    power, fastest = _faster_than(order, turn, factor, entry.name)
    if not power:
        return False
    begin = soonest = math.inf
    for address, theirs in fastest:
        if (other := turn.place(address)) is not None:
            end = other.next_end()
            begin, soonest = min(begin, end), min(soonest, end + theirs * like.mean)
    there, seconds = factor * like.mean, len(pool.ready) * like.mean
    if max(soonest, begin + (_seconds_before(order, turn, pool) + seconds) / power) >= there:
        return False
    if pool.left_since is None:
        pool.left_since = turn.now
    return turn.now - pool.left_since < there


def _faster_than(
    order: Order, turn: Turn, factor: float, name: str
) -> tuple[float, list[tuple[str, float]]]:
    """Return the median threads of workers that are clearly faster, and some of these.

    `name` is that of the tasks. It is as of the last fit of the speeds.
    """
    if order.faster_as_of != order.speeds.learned:
        order.faster, order.faster_as_of = {}, order.speeds.learned
    found = order.faster.get((name, factor))
    if found is None:
        each = [(order.speeds.factor(ws.address, name), ws) for ws in turn.workers()]
        each = [(theirs, ws) for theirs, ws in each if theirs < CLEARLY * factor]
        power = sum(ws.nthreads / theirs for theirs, ws in each)
        faster = sorted((theirs, ws.address) for theirs, ws in each)
        some = [(address, theirs) for theirs, address in faster[:LOOKED_AT]]
        found = order.faster[name, factor] = power, some
    return found


def _seconds_before(order: Order, turn: Turn, pool: Contender) -> float:
    """Return the core-seconds of the ready tasks of the jobs before one."""
    if not turn.seconds_before:
        seconds, open_ = 0.0, turn.open.values()
        keys = ((order.key(each, turn.now, open_), each) for each in order.waiting.pools)
        ranked = sorted((key, i, each) for i, (key, each) in enumerate(keys) if key is not None)
        for _, _, each in ranked:
            turn.seconds_before[each] = seconds
            seconds += len(each.ready) * each.used / max(each.ended, 1)
    return turn.seconds_before.get(pool, math.inf)
