"""Choice of ready tasks for slots: one order of jobs, one cost of places.

The cost of a place is the time to move a task's inputs there: a task waits for its home, the
workers that have them, for as long as that is expected to be sooner. Nothing is sent here: `decide`
changes only the `Order` and the `Turn`, and `undo` takes a choice back that could not be sent.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, product
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.core.dispatch.constants import BACK_WITHIN, LOOKED_AT, SLACK, TRIVIAL, WORTH
from dask_slaq.core.dispatch.order import owner_has_room
from dask_slaq.core.dispatch.places import Place, Sent
from dask_slaq.core.dispatch.ready import ANY, is_plain

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.contender import Contender, Group
    from dask_slaq.core.dispatch.order import Key, Order
    from dask_slaq.core.dispatch.ready import Entry, Ready, TaskKind

# Stages of a turn: tasks that need a resource or certain workers, as long as their job stays within
# its share; tasks at home; all tasks.
SCARCE, AT_HOME, ANYWHERE = range(3)

#: Why a job is served, by the class of its key.
TURNS = ("it is owed core-seconds", "its owner is owed", "its turn", "over its cap")


class Choice(NamedTuple):
    """Choice of a task for a slot of a worker."""

    pool: Contender
    entry: Entry
    address: str
    key: Key
    why: str
    sent: Sent


class Pinned(NamedTuple):
    """Tasks that start together, each on its own worker, with the threads that each uses there."""

    members: Sequence[tuple[Entry, str, float]]


class Inputs(NamedTuple):
    """Inputs of a task: seconds to fetch all; who has some; seconds to fetch the rest there."""

    seconds: float
    at: Collection[str]
    to_fetch: Callable[[str], float]


@dataclass(eq=False)
class Turn:
    """Moment at which slots are filled, and what was chosen so far.

    `open` are the workers that may be sent a task, least loaded first, `place` returns any running
    worker, `free` the free threads of those that suit any of some kinds, and all their threads, and
    `room` how many more tasks of a label may run.
    """

    open: dict[str, Place]
    now: float = 0.0
    threads: int = 1  # of all workers
    running: int = 1  # workers
    place: Callable[[str], Place | None] = lambda address: None
    free: Callable[[Collection[TaskKind]], tuple[int, int]] = lambda kinds: (0, 0)
    inputs: Callable[[Entry], Inputs] = lambda entry: Inputs(0.0, (), lambda address: 0.0)
    room: Callable[[str | None], float] = lambda label: math.inf
    runs: Callable[[str], bool] = lambda label: True  # whether tasks of a label run
    pinned: Mapping[Contender, Sequence[Pinned]] = field(default_factory=dict)

    choices: list[Choice] = field(default_factory=list)
    unserved: set[str] = field(default_factory=set)  # workers where the next turn looks again
    kept: bool = False  # whether slots were kept for a job that is about to come back
    later: float = math.inf  # seconds until a home is late enough for tasks to move
    labels: Counter[str] = field(default_factory=Counter)  # of what was chosen
    coming: Collection[Contender] = ()
    at_limit: Collection[Group] = ()
    only_threads: bool = False  # whether only workers with a free thread are open still

    def leave(self, addresses: Iterable[str]) -> None:
        """Choose no more tasks for some workers."""
        for address in list(addresses):
            del self.open[address]
            self.unserved.add(address)

    def has_room(self, label: str | None) -> bool:
        """Return whether another task of a label may be chosen."""
        return label is None or self.room(label) > self.labels[label]

    def choose(
        self, order: Order, pool: Contender, entry: Entry, place: Place, key: Key, why: str,
        threads: float = 0.0,
    ) -> None:  # fmt: skip
        """Choose a task for a worker; one of a gang uses some `threads` until it ends."""
        like, address = entry.like, place.address
        expected, needs = math.inf if threads else like.expected, entry.kind.resources or ()
        sent = Sent(pool, like, True, why, (), pool.service, expected, like.soonest, needs)
        if threads:
            sent.threads = threads
        order.remove(pool, entry)
        place.add(sent, entry)
        sent.worker = address
        pool.running[entry.ts] = sent
        pool.use(sent.threads)
        if expected < math.inf:
            sent.ahead = expected * sent.threads
            pool.charge(sent.ahead)
        if not entry.homes:
            pool.made_at[address] = pool.made_at.get(address, 0.0) + 1
        if entry.kind.label is not None:
            self.labels[entry.kind.label] += 1
        if address in self.open and not (
            place.has_thread if self.only_threads else place.has_slot()
        ):
            del self.open[address]
        self.choices.append(Choice(pool, entry, address, key, why, sent))


def undo(order: Order, choice: Choice, *, listed: bool) -> None:
    """Take a choice back that was not sent; its task is `listed` again if it waits still."""
    pool, sent, ts = choice.pool, choice.sent, choice.entry.ts
    if pool.running.get(ts) is sent:
        del pool.running[ts]
    pool.use(-sent.threads)
    pool.charge(-sent.ahead)
    if not choice.entry.homes:
        pool.made_at[choice.address] -= 1
        if not pool.made_at[choice.address]:
            del pool.made_at[choice.address]
    if listed:
        order.put_back(pool, choice.entry)


def decide(order: Order, turn: Turn) -> list[Choice]:
    """Choose tasks for the workers that are open, until slots or tasks run out."""
    if turn.open:
        turn.coming = order.coming(turn.now)
        turn.at_limit = _owed_at_limit(order)
        if order.waiting.scarce:
            _serve(order, turn, SCARCE)
        _serve(order, turn, AT_HOME)
        if turn.open:
            _serve(order, turn, ANYWHERE)
    turn.unserved |= turn.open.keys()
    return turn.choices


def _candidates(order: Order, turn: Turn, stage: int) -> Collection[Contender]:
    """Return the jobs that may have a task for an open slot."""
    index = order.waiting
    if stage is not AT_HOME:
        return list(index.pools)
    found: dict[Contender, Any] = dict.fromkeys(index.sent_by_dask)
    found.update(index.together)
    found.update(dict.fromkeys(turn.pinned))
    at = index.at
    if "" in at:
        found.update(at[""])
    for address in turn.open if len(turn.open) < len(at) else at:
        if address in at and address in turn.open:
            found.update(at[address])
    return found


def _serve(order: Order, turn: Turn, stage: int) -> None:
    """Serve the jobs in turn, one task per turn."""
    now, open_ = turn.now, turn.open.values()
    waiting = _candidates(order, turn, stage)
    before = order.before(waiting, now, open_)

    def rank(pool: Contender) -> Key | None:
        key = pool.key if now < pool.key_until else order.key(pool, now, open_)
        return key if key is None or pool not in before else min(key, before[pool])

    queue = [(key, i, pool) for i, pool in enumerate(waiting) if (key := rank(pool)) is not None]
    heapq.heapify(queue)
    while queue and turn.open:
        key, i, pool = heapq.heappop(queue)
        if pool.group is not None and (newer := rank(pool)) != key:
            if newer is not None:  # another job of its owner was served meanwhile
                heapq.heappush(queue, (newer, i, pool))
            continue
        if stage is AT_HOME:
            if pool.sent_by_dask:
                # Workers that go on with tasks that Dask has sent: it is their turn as well.
                turn.leave(
                    [a for a in pool.sent_by_dask if a in turn.open and turn.open[a].has_backlog()]
                )
            if pool in turn.pinned:
                _start_pinned(order, turn, pool, key)
        if not pool.kinds or (stage is SCARCE and _has_its_share(pool)):
            continue
        if pool.gang and not pool.running:
            if _kept_apart(turn, pool):
                continue
            free, threads = turn.free(pool.kinds)
            if free < min(len(pool.ready), threads):
                turn.leave(turn.open)  # keep all slots until there are enough for the gang
                return
            if stage is not SCARCE or not all(map(is_plain, pool.kinds)):
                places = _places(order, turn, pool)
                if places and _is_kept_from(turn, pool, *places[0][:2], more=len(places) - 1):
                    turn.kept = True
                    continue
                for entry, place, why in places:
                    turn.choose(order, pool, entry, place, key, why)
            if not pool.kinds:
                continue
        found = _choose(order, turn, pool, key, stage)
        if found is None:
            waits = pool.first_root() and not _yields(order, pool.kinds[ANY], stage)
            if waits and not turn.only_threads:
                # It waits for a free thread: no other job's task is sent ahead instead.
                turn.only_threads = True
                turn.leave([a for a, place in turn.open.items() if not place.has_thread])
            continue
        entry, place, why = found
        if _is_kept_from(turn, pool, entry, place):
            turn.kept = True
            continue
        turn.choose(order, pool, entry, place, key, why)
        if pool.ready and (again := rank(pool)) is not None:
            heapq.heappush(queue, (again, i, pool))


# Tasks that start together


def _start_pinned(order: Order, turn: Turn, pool: Contender, key: Key) -> None:
    """Choose all members of each gang of a job at once, or keep its workers until that fits."""
    for gang in turn.pinned[pool]:
        threads = sum(each[2] for each in gang.members)
        if pool.group is not None and not (
            pool.group.has_room(threads)
            and pool.group.supplies(_needs(e for e, *_ in gang.members))
        ):
            continue
        labels = Counter(e.kind.label for e, *_ in gang.members if e.kind.label is not None)
        if any(turn.room(label) - turn.labels[label] < n for label, n in labels.items()):
            continue
        places = {address for _, address, _ in gang.members}
        at = {address: turn.open.get(address) for address in places}
        if all(place is not None and place.has_thread for place in at.values()):
            why = f"its turn: all {len(gang.members)} of its gang at once"
            for entry, address, used in gang.members:
                turn.choose(order, pool, entry, at[address], key, why, used)  # type: ignore[arg-type]
        turn.leave([a for a in places if a in turn.open])


def _has_its_share(pool: Contender) -> bool:
    """Return whether a job runs as many tasks as its share: beyond that, it comes in its turn.

    Of a job that waits for a resource, those count that need one: its others may run meanwhile.
    """
    share = max(pool.share, 1)
    if len(pool.running) < share:
        return False
    if not any(kind.resources for kind in pool.kinds):
        return True
    return sum(bool(sent.needs) for sent in pool.running.values()) >= share


def _kept_apart(turn: Turn, pool: Contender) -> bool:
    """Return whether ready tasks could not start together now for their labels, but could later."""
    ready: Counter[str] = Counter()
    for kind, tasks in pool.kinds.items():
        if kind.label is not None:
            ready[kind.label] += len(tasks)
    return any(
        count > turn.room(label) - turn.labels[label] and (turn.runs(label) or turn.labels[label])
        for label, count in ready.items()
    )


def _places(order: Order, turn: Turn, pool: Contender) -> list[tuple[Entry, Place, str]]:
    """Return free threads for all ready tasks of a gang, or as many as can ever run.

    A task whose home is busy does not wait for it, since the others would hold their threads and
    wait for it. Empty if a task finds no thread that it may take: they go one by one then.
    """
    free = {a: place.free for a, place in turn.open.items() if place.has_thread}
    entries = sorted(e for e in pool.ready.values() if e in pool.kinds.get(e.kind, ()))
    entries = entries[: turn.threads]
    group = pool.group
    if len(entries) < 2 or not (group is None or group.has_room(len(entries))):
        return []
    if group is not None and not group.supplies(_needs(entries)):
        return []
    labels = Counter(entry.kind.label for entry in entries if entry.kind.label is not None)
    if any(count > turn.room(label) - turn.labels[label] for label, count in labels.items()):
        return []
    found: dict[Any, tuple[Entry, Place, str]] = {}
    taken: Counter[tuple[str, str]] = Counter()  # of each worker's resources
    for at_home, entry in product((True, False), entries):
        if entry.ts in found:
            continue
        needs = entry.kind.resources or ()
        for a in entry.homes if at_home else sorted(free, key=lambda a: (-free[a], a)):
            place = turn.open.get(a)
            if place is None or not free.get(a) or not _may(order, turn, pool, entry, place):
                continue
            left = {r: place.resources[r] - place.used_resources.get(r, 0) for r, _ in needs}
            if all(left[r] - taken[a, r] >= needed for r, needed in needs):
                lent = "" if a in pool.workers else "lent, "
                where = "home of its input" if at_home else "a thread is free"
                found[entry.ts] = entry, place, f"{lent}all at once: {where}"
                free[a] -= 1
                taken.update({(a, r): needed for r, needed in needs})
                break
    return list(found.values()) if len(found) == len(entries) else []


# One task


def _choose(
    order: Order, turn: Turn, pool: Contender, key: Key, stage: int
) -> tuple[Entry, Place, str] | None:
    """Return the job's first task, in Dask's order, that may take a slot, and why there."""
    best: tuple[Entry, Place, str] | None = None
    least: tuple[Any, ...] = ()
    kinds = [each for each in pool.kinds.items() if turn.has_room(each[0].label)]
    for kind, ready in kinds:
        if stage is SCARCE and is_plain(kind):
            continue
        homes, slots = ready.homes, turn.open
        few, many = (homes, slots) if len(homes) < len(slots) else (slots, homes)
        for address in list(islice((a for a in few if a in many), LOOKED_AT)):
            entry, place = ready.at(address), slots[address]
            if entry is None:
                continue
            rank = *entry[:3], not place.has_thread, place.load / place.nthreads, address
            if (best is None or rank < least) and _may(order, turn, pool, entry, place):
                best, least = (entry, place, "home of its input"), rank
        entry = ready.at()
        if entry is not None and entry.rootish and _yields(order, ready, stage):
            entry = None
        if entry is not None and (best is None or entry[:3] < least):
            found = _least_loaded(order, turn, pool, key, entry, stage)
            if found is not None:
                best, least = (entry, found, "any worker will do"), entry[:3]
    if best is None and stage is ANYWHERE:
        moved = (_moved(order, turn, pool, ready) for _, ready in kinds)
        best = min((m for m in moved if m is not None), key=itemgetter(0), default=None)
    if best is None:
        return None
    entry, place, where = best
    lent = "" if place.address in pool.workers else "lent, "
    return entry, place, f"{lent}{TURNS[key.turn]}: {where}"


def _yields(order: Order, ready: Ready, stage: int) -> bool:
    """Return whether a job loads no more while its data waits for its workers, if others wait."""
    waits_at_home = len(ready) > ready.count_at[""]
    return stage is not ANYWHERE and waits_at_home and len(order.waiting.pools) > 1


def _least_loaded(
    order: Order, turn: Turn, pool: Contender, key: Key, entry: Entry, stage: int
) -> Place | None:
    """Return the worker for a task without a home: with a free thread, and little of its job.

    While many jobs compete, only a few workers have a slot at a time. All data of a job would be
    made there, and the tasks that need it would follow. So another job may take the slot first,
    unless the owner is owed threads.
    """
    made, most = pool.made_at, math.inf
    plain = is_plain(entry.kind)
    if stage is not ANYWHERE and plain and made and entry.loads and not key.owner_lag:
        most = sum(made.values()) / turn.threads + 1
    best: Place | None = None
    least: tuple[bool, float, bool] | None = None
    for looked, (address, place) in enumerate(turn.open.items()):
        if best is not None and looked >= LOOKED_AT:
            break
        there = made.get(address, 0.0) / place.nthreads
        if there > most:
            continue
        rank = (not place.has_thread, there, address not in pool.workers)
        if (least is None or rank < least) and _may(order, turn, pool, entry, place):
            best, least = place, rank
    return best


def _needs(entries: Iterable[Entry]) -> list[tuple[str, float]]:
    """Return the resources that several tasks need together."""
    needs: Counter[str] = Counter()
    for entry in entries:
        needs.update(dict(entry.kind.resources or ()))
    return list(needs.items())


def _may(order: Order, turn: Turn, pool: Contender, entry: Entry, place: Place) -> bool:
    """Return whether a task may take a slot of a worker."""
    kind = entry.kind
    if pool.group is not None and not owner_has_room(pool.group, turn.open.values(), [place]):
        return False
    if pool.group is not None and not pool.group.supplies(kind.resources or ()):
        return False
    ahead = turn.at_limit and not place.has_thread and entry.like.mean > BACK_WITHIN
    if ahead and any(map(place.mixes, turn.at_limit)):
        return False
    if not order.lend and place.address not in pool.workers:
        # Tasks whose ``workers=`` are all outside the worker set would never run in it.
        mine = (turn.place(a) for a in pool.workers)
        if is_plain(kind) or any(p is not None and kind.allows(p) for p in mine):
            return False
    if entry.rootish:
        # No more than Dask itself sends, so that memory does not fill up.
        waits = _waits_for_resources(turn, pool, place)
        at_once = entry.like.is_trivial and place.free_in() < TRIVIAL and not waits
        if order.is_saturated(place, waits) and not at_once:
            return False
    if is_plain(kind) or kind.suits(place):
        return True
    # One task may wait on the worker until the resource is free, which hides a round trip.
    return kind.allows(place) and not place.blocked and place.resource_free_in() < place.ahead


def _waits_for_resources(turn: Turn, pool: Contender, place: Place) -> int:
    """Return how many tasks of a job Dask would let wait on a worker for a resource.

    It would send them to their homes as soon as they are ready, and those without one anywhere.
    What the owner may have no more of now does not count.
    """
    waits = 0
    for kind, ready in pool.kinds.items():
        if kind.resources and (pool.group is None or pool.group.supplies(kind.resources)):
            at = ready.count_at
            waits += at[place.address] + at[""] // turn.running
    return waits + place.blocked if waits else 0


def _moved(
    order: Order, turn: Turn, pool: Contender, ready: Ready
) -> tuple[Entry, Place, str] | None:
    """Return a task that would wait for its home longer than it takes to move its inputs."""
    free = [place for place in islice(turn.open.values(), LOOKED_AT) if place.has_thread]
    if not free:
        return None
    count = ready.count_at
    for home in heapq.nlargest(LOOKED_AT, ready.homes, key=lambda home: (count[home], home)):
        entry = ready.at(home)
        if entry is None or not home:
            continue
        there = [place for a in entry.homes if (place := turn.place(a)) is not None]
        if not order.lend:
            there = [place for place in there if place.address in pool.workers]
        wait = {place: _wait(place, entry, ready) for place in there}
        waits, inputs = min(wait.values(), default=math.inf), turn.inputs(entry)
        if waits <= inputs.seconds:
            # No event tells that the tasks there take longer than expected.
            short = {place: inputs.seconds - (wait[place] - place.next_end()) for place in there}
            late = max(place.late_in(short[place]) for place in there)
            turn.later = min(turn.later, late) if late > 0 else turn.later
        # Most workers have none of its inputs, and would have to fetch all.
        some = any(place.address in inputs.at for place in free)
        if inputs.seconds >= waits and not some:
            continue
        for place in free:
            some = place.address in inputs.at
            seconds = inputs.to_fetch(place.address) if some else inputs.seconds
            if seconds < waits and _may(order, turn, pool, entry, place):
                busy = f"busy for {waits:.2g} s" if waits < math.inf else "not available"
                return entry, place, f"moved, {1000 * seconds:.2g} ms to fetch, home {busy}"
    return None


def _wait(place: Place, entry: Entry, ready: Ready) -> float:
    """Return the seconds until a task may start at its home, after those that wait for it."""
    expected = entry.like.mean if entry.like.mean < math.inf else 0.0
    seconds, slots = place.next_end(), float(place.nthreads)
    if not entry.kind.suits(place):
        seconds = max(seconds, place.resource_free_in())
    for resource, needed in entry.kind.resources or ():
        slots = min(slots, place.resources.get(resource, 0) / needed if needed else slots)
    return seconds + (ready.count_at[place.address] - 1) * expected / max(slots, 1.0)


# Anticipation


def _owed_at_limit(order: Order) -> list[Group]:
    """Return the owners and teams at their limit that have tasks, and are owed threads.

    No long task is sent ahead to where a task of these computes. Their next one may not wait there
    (`owner_has_room`), and would find the thread taken: an owner with a limit of one thread of four
    had three quarters of it.
    """
    found: dict[Group, None] = {}
    for pool in order.waiting.pools:
        if pool.group is not None and pool.group.lag > 0 and not pool.paused:
            found.update(dict.fromkeys(pool.group.full()))
    return list(found)


def _is_kept_from(turn: Turn, pool: Contender, entry: Entry, place: Place, more: int = 0) -> bool:
    """Return whether a slot is kept for a job that is about to have a ready task again.

    `more` is the number of slots that are taken together with it.

    An iterative job has no ready task for a moment between two iterations. If its slots were taken
    by long tasks meanwhile, it would wait until these end (anticipatory scheduling: Iyer and
    Druschel, SOSP 2001).
    """
    if not turn.coming or entry.like.mean <= BACK_WITHIN:
        return False
    kept = 0.0
    for other in turn.coming:
        if other is pool or other.ready or not _comes_before(other, pool, turn.threads):
            continue
        running = other.running.values()
        ends = max((sent.seconds_left(turn.now) for sent in running), default=0.0)
        if ends <= place.next_end() + 2 * BACK_WITHIN:
            # One that is behind is given more than its share to catch up.
            catching_up = len(running) if other.index == pool.index else 0
            due = min(other.gaps.width, other.share + catching_up)
            elsewhere = sum(sent.worker != place.address for sent in running)
            kept += max(due - elsewhere, 0.0)
    slots = sum(max(p.nthreads - p.load, 1) for p in turn.open.values())
    return kept > 0 and math.ceil(kept) >= slots - more


def _comes_before(one: Contender, other: Contender, threads: int) -> bool:
    if one.on_spare != other.on_spare:
        return other.on_spare
    if one.index == other.index:
        behind = SLACK * threads / 2 / (one.weight + other.weight)
        return one.service + behind < other.service
    return one.index > WORTH * max(other.index, 0.0) and one.share >= 1
