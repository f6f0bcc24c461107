"""Small clusters with jobs and ready tasks, drawn at random, as `Dispatcher` sees them.

All seconds are multiples of 1/64 and all weights powers of two, so that sums are exact.
"""

import math
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from dask_slaq.core.dispatch import (
    ANY,
    Dispatcher,
    DurationEstimate,
    Group,
    Guarantee,
    Handover,
    Inputs,
    JobQueue,
    Order,
    Pinned,
    Slots,
    TaskConstraints,
)
from dask_slaq.core.dispatch.job_queue import Granted

#: The moment of all turns, in monotonic seconds.
NOW = 1024.0
GPU = (("GPU", 1.0),)


@dataclass(frozen=True)
class Task:
    """Ready task of a job, by number; `wanted_by` is another job that waits for it."""

    job: int
    seconds: float = math.inf  # expected; infinite if unknown
    root: bool = False
    priority: int = 0  # of the user, negated
    preferred: tuple[int, ...] = ()
    fetch: float = 0.0  # seconds to move its inputs
    gpu: bool = False
    pin: int | None = None  # the only worker that the user allows
    label: bool = False
    wanted_by: int | None = None
    loads: bool = False


@dataclass(frozen=True)
class Job:
    """Job, and its account."""

    owner: int | None = None
    index: float = 0.0
    service: float = 0.0
    weight: float = 1.0
    share: float = 1.0
    most: float = math.inf
    balance: float = 0.0
    rate: float = 0.0
    paused: bool = False
    gang: bool = False
    workers: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Worker:
    """Worker with tasks that compute, each of a job and with some seconds left, or infinite."""

    threads: int = 1
    gpu: bool = False
    busy: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class World:
    """What a fill begins with."""

    workers: tuple[Worker, ...]
    jobs: tuple[Job, ...]
    tasks: tuple[Task, ...]
    owners: tuple[tuple[float, float], ...] = ()  # maximum of threads and tokens of each
    lend: bool = True
    saturation: float = 1.125
    room: float = math.inf  # of the label
    pinned: tuple[tuple[int, tuple[int, ...]], ...] = ()  # gangs: job, and a worker per member


@dataclass
class Built:
    """A world, built anew: nothing of it is shared with another."""

    world: World
    order: Order
    pools: list[JobQueue]
    places: dict[str, Slots]
    gangs: dict[JobQueue, list[Pinned]]
    groups: list[Group]
    fetch: dict[str, float]
    listed: dict[str, list[JobQueue]] = field(default_factory=dict)
    kept: bool = False  # whether slots were kept

    def fill(self) -> list[Any]:
        """Return the choices for all workers that are open."""
        return list(self.choices())

    def choices(self) -> Any:
        """Yield these one by one, and send each before the next."""
        dispatcher = Dispatcher(self.order, self, 0.025)
        for slots in sorted(self.places.values(), key=lambda s: (s.load / s.nthreads, s.address)):
            dispatcher.look(slots, NOW)
        for choice in dispatcher.choices(NOW):
            yield choice
            self._send(choice)
        self.kept = dispatcher.has_kept_slots

    def _send(self, choice: Any) -> None:
        slots = self.places[choice.worker]
        needs, used = choice.constraints.resources or (), slots.used_resources
        if any(used.get(r, 0) + n > slots.resources.get(r, 0) for r, n in needs):
            slots.blocked += 1
        else:
            slots.load += 1
        slots.used_resources = {**used, **{r: used.get(r, 0) + n for r, n in needs}}
        self.order.sent(choice)
        choice.order = (len(slots.tasks),)
        slots.put(choice, NOW)

    # What a choice has to know of the cluster

    @property
    def threads(self) -> int:
        return sum(slots.nthreads for slots in self.places.values())

    @property
    def workers(self) -> int:
        return len(self.places)

    def slots(self, address: str) -> Slots | None:
        return self.places.get(address)

    def busy(self) -> Any:
        return [slots for slots in self.places.values() if slots.tasks]

    def idle(self, kinds: Any) -> tuple[int, int]:
        fits = [s for s in self.places.values() if any(kind.allows(s) for kind in kinds)]
        return sum(slots.free for slots in fits), sum(slots.nthreads for slots in fits)

    def occupancy(self, address: str) -> float:
        return 0.0

    def inputs(self, task: Handover) -> Inputs:
        seconds = self.fetch[task.ts]
        return Inputs(seconds, task.preferred, lambda a: 0.0 if a in task.preferred else seconds)

    def free(self, label: str | None) -> float:
        tasks = self.world.tasks
        running = (ts.split("-") for pool in self.pools for ts in pool.running)
        used = sum(w == "gang" or (w == "task" and tasks[int(k)].label) for w, k, *_ in running)
        return math.inf if label is None else self.world.room - used

    def runs(self, label: str) -> bool:
        return False

    def pinned(self, now: float) -> dict[JobQueue, list[Pinned]]:
        return self.gangs


def address(worker: int) -> str:
    return f"worker-{worker}"


def slots_of(world: World, pools: list[JobQueue], number: int) -> Slots:
    """Return a worker as the shell would observe it, with the tasks there."""
    worker = world.workers[number]
    slots = Slots(address(number), worker.threads, resources={"GPU": 1.0} if worker.gpu else {})
    for k, (job, left) in enumerate(worker.busy):
        like = DurationEstimate(left)
        about = {"expected": like.expected, "soonest": like.soonest}
        slots.load += 1
        slots.put(Handover(pools[job], f"busy-{number}-{k}", like, **about), NOW)
    return slots


def build(world: World) -> Built:
    """Build a world anew."""
    listed: dict[str, list[JobQueue]] = {}
    order = Order(
        lend=world.lend, saturation=world.saturation, listed=lambda task: listed.get(task.ts, ())
    )
    groups = [Group(most, 1.0, tokens) for most, tokens in world.owners]
    pools = []
    for number, job in enumerate(world.jobs):
        owner = "" if job.owner is None else f"owner-{job.owner}"
        pool = JobQueue(f"job-{number}", owner, job.weight, job.gang, order.waiting)
        pool.service, pool.paused = job.service, job.paused
        pool.granted = Granted(job.share, job.index, job.most, frozenset(map(address, job.workers)))
        pool.account = Guarantee(job.balance, job.rate, NOW, 1.0)
        if job.owner is not None:
            pool.group = groups[job.owner]
            pool.group.pools.append(pool)
        pools.append(pool)
    places = {}
    for number in range(len(world.workers)):
        slots = places[address(number)] = slots_of(world, pools, number)
        for sent in slots.tasks.values():
            sent.pool.enter(sent, sent.worker, moves=False)
    fetch = {}
    for count, task in enumerate(world.tasks):
        ts = f"task-{count}"
        kind = ANY
        if task.gpu or task.pin is not None or task.label:
            allowed = None if task.pin is None else frozenset({address(task.pin)})
            kind = TaskConstraints(
                allowed, GPU if task.gpu else None, "label" if task.label else None
            )
        rank, preferred = (
            (task.root, (task.priority, count), count),
            tuple(map(address, task.preferred)),
        )
        ready = Handover(
            pools[task.job], ts, DurationEstimate(task.seconds), rank, task.root, constraints=kind,
            preferred=preferred, loads=task.loads,
        )  # fmt: skip
        fetch[ts] = task.fetch
        pools[task.job].push(ready)
        if task.wanted_by not in (None, task.job):
            pools[task.wanted_by].push(ready)
            listed[ts] = [pools[task.job], pools[task.wanted_by]]
    pinned: dict[JobQueue, list[Pinned]] = {}
    for number, (job, members) in enumerate(world.pinned):
        found = []
        for k, worker in enumerate(members):
            label = "label" if world.room < math.inf else None
            kind = TaskConstraints(frozenset({address(worker)}), None, label)
            ts = f"gang-{number}-{k}"
            rank = (False, (0,), 10_000 + 100 * number + k)
            ready = Handover(pools[job], ts, DurationEstimate(), rank, constraints=kind)
            pools[job].push(ready, filed=False)
            fetch[ts] = 0.0
            found.append((ready, address(worker), 1.0))
        pinned.setdefault(pools[job], []).append(Pinned(found))
    return Built(world, order, pools, places, pinned, groups, fetch, listed)


def accounts(built: Built) -> Any:
    """Return all that a choice changes, to compare."""
    return [
        (
            set(pool.ready), set(pool.running), pool.threads, pool.service, pool.account.balance,
            pool.made_at, {k: dict(r.count_at) for k, r in pool.filed.items()}, pool.prioritized,
            pool.user_priority(), [(g.running, g.tokens) for g in built.groups],
            built.order.key(pool, NOW),
        )
        for pool in built.pools
    ]  # fmt: skip


def plain(choices: list[Any]) -> list[tuple[str, str, str, str]]:
    """Return what was chosen, to compare between worlds that were built apart."""
    return [(c.pool.name, c.ts, c.worker, c.why) for c in choices]


def seconds(least: int = 1, most: int = 128) -> Any:
    return st.integers(least, most).map(lambda n: n / 64)


@st.composite
def worlds(
    draw: Any,
    *,
    workers: int = 4,
    threads: int = 3,
    jobs: int = 4,
    tasks: int = 12,
    busy: bool = True,
    preferred: bool = True,
    roots: bool = True,
    scarce: bool = True,
    owners: bool = False,
    capped: bool = True,
    gangs: bool = False,
    shared: bool = True,
    priorities: bool = False,
    lend: bool = True,
    prefetch: bool = True,
) -> World:
    """Draw a world, with what is asked for."""
    n_jobs = draw(st.integers(1, jobs))
    job_numbers = st.integers(0, n_jobs - 1)
    n_workers = draw(st.integers(1, workers))
    worker_numbers = st.integers(0, n_workers - 1)
    some_owner = st.none() if not owners else st.integers(0, 1)
    limits = st.tuples(st.sampled_from([1.0, 2.0, 4.0, math.inf]), st.sampled_from([0.0, 2.0]))
    left = (
        st.just(math.inf)
        if not prefetch
        else st.one_of(seconds(), st.just(math.inf), st.just(1 / 64))
    )
    drawn_workers = []
    for _ in range(n_workers):
        n = draw(st.integers(1, threads))
        running = draw(st.lists(st.tuples(job_numbers, left), max_size=n)) if busy else []
        drawn_workers.append(Worker(n, draw(st.booleans()) if scarce else False, tuple(running)))
    drawn_jobs = [
        Job(
            owner=draw(some_owner),
            index=draw(st.sampled_from([0.0, 0.0, 1.0, 8.0, math.inf])),
            service=draw(seconds(0)),
            weight=draw(st.sampled_from([1.0, 2.0, 0.5])),
            share=draw(st.sampled_from([0.0, 1.0, 2.0])),
            most=draw(st.sampled_from([0.0, 1.0, 2.0, math.inf])) if capped else math.inf,
            balance=draw(st.sampled_from([0.0, 0.0, 1.0, -1.0])),
            rate=draw(st.sampled_from([0.0, 0.5])),
            paused=draw(st.sampled_from([False, False, False, True])) if capped else False,
            gang=draw(st.booleans()) if gangs else False,
            workers=draw(st.frozensets(worker_numbers)),
        )
        for _ in range(n_jobs)
    ]
    drawn_tasks = [
        Task(
            job=draw(job_numbers),
            seconds=draw(st.one_of(seconds(1 if prefetch else 8), st.just(math.inf))),
            root=draw(st.booleans()) if roots else False,
            priority=draw(st.sampled_from([0, -5, 5])) if priorities else 0,
            preferred=tuple(draw(st.sets(worker_numbers, max_size=2))) if preferred else (),
            fetch=draw(seconds(0, 64)) if preferred else 0.0,
            gpu=draw(st.sampled_from([False, False, True])) if scarce else False,
            pin=draw(st.one_of(st.none(), st.none(), worker_numbers)) if scarce else None,
            label=draw(st.booleans()) if scarce else False,
            wanted_by=draw(st.one_of(st.none(), job_numbers)) if shared else None,
            loads=draw(st.booleans()) if roots else False,
        )
        for _ in range(draw(st.integers(0, tasks)))
    ]
    return World(
        tuple(drawn_workers),
        tuple(drawn_jobs),
        tuple(drawn_tasks),
        tuple(draw(some) for some in [limits] * 2) if owners else (),
        draw(st.booleans()) if lend else True,
        draw(st.sampled_from([1.125, 1.0, math.inf])),
        draw(st.sampled_from([0.0, 1.0, 2.0, math.inf])) if scarce else math.inf,
    )
