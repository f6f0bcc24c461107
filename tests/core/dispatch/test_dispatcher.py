"""Properties of `Filler`, on small random clusters and against a slow, obvious rival."""

import math
from collections import Counter
from dataclasses import replace

import pytest
from dispatch_worlds import GPU, NOW, Job, Task, Worker, World, accounts, build, plain, worlds
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.dispatch import Group, Slots
from dask_slaq.core.dispatch.job_queue import OWNER_OWED
from dask_slaq.core.dispatch.slot_rules import SlotRules

#: What it may meet, but for gangs and limits of owners, which have worlds of their own.
anything = worlds(priorities=True)
#: Tasks that any worker may run, and threads that are free now or never.
simple = worlds(
    preferred=False, roots=False, scarce=False, owners=True, prefetch=False, workers=3, jobs=5
)


# The rival


def rival(world):
    """Choose as `Filler` would, job by job and task by task: all is found anew each time."""
    built = build(world)
    service = [job.service for job in world.jobs]
    balance = [job.balance for job in world.jobs]
    running = [0] * len(world.jobs)
    for worker in world.workers:
        for job, _ in worker.busy:
            running[job] += 1
    tokens = [tokens for _, tokens in world.owners]
    free = [worker.threads - len(worker.busy) for worker in world.workers]
    load = [len(worker.busy) for worker in world.workers]
    made = [Counter() for _ in world.jobs]
    ready = dict(enumerate(world.tasks))
    by_load = sorted(
        range(len(free)), key=lambda w: (load[w] / world.workers[w].threads, f"worker-{w}")
    )
    found = []

    def of_owner(owner):
        return sum(n for job, n in zip(world.jobs, running, strict=True) if job.owner == owner)

    def key(number):
        job = world.jobs[number]
        lag = 0.0
        if job.owner is not None:
            if of_owner(job.owner) + 1 > world.owners[job.owner][0]:
                return None
            lag = max(tokens[job.owner], 0.0)
        counts = job.owner is None or lag > 0 or job.index == math.inf
        below, since = running[number] < job.most, 0.0
        if job.paused or not (below or world.lend):
            return None
        if counts and below and (balance[number] > 0 or job.index == math.inf):
            turn = 0
            since = NOW - balance[number] / job.rate if job.rate else -math.inf
        elif not below:
            turn = 4
        elif lag > 0:
            turn = 1
        else:
            turn = 2 if not world.lend and running[number] < job.share else 3
        order = job.index, service[number], running[number] / job.weight
        first = -lag if turn < 2 else 0.0
        return turn > 1, first, turn, since, -order[0], order[1], order[2], f"job-{number}"

    in_sets = not world.lend
    while True:
        best = None
        for number, job in enumerate(world.jobs):
            theirs = [n for n, task in ready.items() if number in (task.job, task.wanted_by)]
            mine = key(number)
            entitled = in_sets and mine is not None and mine[2] >= 2
            places = [w for w in by_load if free[w] and (not entitled or w in job.workers)]
            if entitled and mine[2] > 2:
                continue
            if theirs and places and mine is not None and (best is None or mine < best[0]):
                threads = {w: world.workers[w].threads for w in places}
                place = min(
                    places, key=lambda w: (made[number][w] / threads[w], w not in job.workers)
                )
                best = mine, number, min(theirs), place
        if best is None and not in_sets:
            return found
        if best is None:
            in_sets = False  # what nobody can use by his share is granted to others
            continue
        _, number, task, place = best
        job, expected = world.jobs[number], ready.pop(task).seconds
        running[number] += 1
        free[place] -= 1
        made[number][place] += 1
        if expected < math.inf:
            service[number] += expected / job.weight
            balance[number] -= expected
            if job.owner is not None:
                tokens[job.owner] -= expected
        found.append((f"job-{number}", f"task-{task}", built.places[f"worker-{place}"].address))


@given(simple)
def test_it_chooses_as_a_slow_rival_does(world):
    assert [each[:3] for each in plain(build(world).fill())] == rival(world)


# Who is served


def may(built, pool, entry, place):
    """Return whether a task may take a slot, by the rules that are in words in docs/dispatch.md."""
    kind = entry.constraints
    if kind.label is not None and not built.free(kind.label):
        return False
    if kind.allowed is not None and place.address not in kind.allowed:
        return False
    if entry.rootish:
        needs = [e.preferred for e in pool.ready.values() if e.constraints.resources]
        waits = sum(place.address in preferred for preferred in needs)
        waits += sum(not preferred for preferred in needs) // len(built.places)
        load = place.load + (waits + place.blocked if waits else 0)
        if load >= max(built.world.saturation * place.nthreads, 1):
            return False
    return all(
        place.resources.get(r, 0) - place.used_resources.get(r, 0) >= n
        for r, n in kind.resources or ()
    )


@given(anything)
def test_no_free_thread_stays_beside_a_ready_task_that_may_take_it(world):
    built = build(world)
    built.fill()
    for pool in built.pools:
        if built.order.key(pool, NOW) is None:
            continue
        for tasks in pool.filed.values():
            for home in list(tasks.preferred):
                entry = tasks.at(home)
                for place in built.places.values():
                    if entry is None or not place.has_thread or (entry.loads and built.kept):
                        continue
                    if not entry.preferred or place.address in entry.preferred:
                        assert not may(built, pool, entry, place), (pool.name, entry, place)


@given(worlds(scarce=False, roots=False, prefetch=False, shared=False))
def test_a_grant_moves_only_where_nobody_can_use_a_thread_by_his_set_and_share(world):
    built = build(replace(world, lend=False))
    chosen = []
    for choice in built.choices():
        chosen.append(choice)
        if choice.worker in choice.pool.granted.planned or choice.key.standing <= OWNER_OWED:
            continue
        for pool in built.pools:
            key = built.order.key(pool, NOW)
            if pool is choice.pool or key is None or not key.entitled:
                continue
            first = next(iter(pool.first_ready()), None)
            assert first is None or first.preferred or choice.worker not in pool.granted.planned
    for pool in built.pools:
        assert {task.worker for task in chosen if task.pool is pool} <= pool.granted.workers
        for task in list(pool.running.values()):
            pool.leave(task)
        assert pool.granted.workers == pool.granted.planned


@given(anything)
def test_a_task_is_chosen_once_and_is_then_in_no_list(world):
    built = build(world)
    chosen = [choice.ts for choice in built.fill()]
    assert len(chosen) == len(set(chosen)) <= len(world.tasks)
    for pool in built.pools:
        assert not pool.ready.keys() & set(chosen)
    built.order.waiting.check(built.pools)


@given(worlds(owners=True))
def test_owners_stay_below_their_limit_or_wait_behind_their_own(world):
    built = build(world)
    choices = built.fill()
    for group in built.groups:
        begun = [c for c in choices if c.pool.group is group and c.start is not None]
        before = sum(p.threads for p in group.pools) - sum(c.pool.group is group for c in choices)
        assert not begun or before + len(begun) <= group.most


@given(anything)
def test_labels_have_no_more_tasks_than_room(world):
    assert sum(c.constraints.label is not None for c in build(world).fill()) <= world.room


@given(anything)
def test_tasks_run_only_where_the_user_and_the_resources_allow_it(world):
    built = build(world)
    for choice in built.fill():
        kind, place = choice.constraints, built.places[choice.worker]
        assert kind.allows(place)
    for place in built.places.values():
        over = place.used_resources.get("GPU", 0) - place.resources.get("GPU", 0)
        assert over <= 1, "one more may wait there"


@given(anything)
def test_no_worker_gets_more_root_tasks_than_dask_itself_sends(world):
    built = build(world)
    loads = Counter({place.address: place.load for place in built.places.values()})
    for choice in built.fill():
        place = built.places[choice.worker]
        if choice.rootish:
            assert loads[choice.worker] < max(world.saturation * place.nthreads, 1)
        loads[choice.worker] += 1


@given(worlds(scarce=False, roots=False))
def test_one_task_waits_per_thread_or_eight_trivial_ones(world):
    built = build(world)
    built.fill()
    for place in built.places.values():
        assert place.ours <= 8 * place.nthreads
        if all(sent.expected >= 1 / 64 for sent in place.tasks.values()):
            assert place.ours <= place.nthreads


@pytest.mark.parametrize(
    ("left", "seconds", "count"),
    [
        *((1 / 64, 1 / 64, 1), (1 / 64, 1 / 256, 3), (1 / 64, 2**-14, 8)),
        *((2**-14, 1 / 256, 7), (2**-14, 1 / 128, 2), (2**-14, 1 / 16, 1)),
    ],
)
def test_short_tasks_wait_in_runs_of_up_to_eight_the_shorter_the_longer_in_sum(
    left, seconds, count
):
    tasks = tuple(Task(1, seconds=seconds) for _ in range(20))
    world = World((Worker(1, busy=((0, left),)),), (Job(index=1.0), Job(index=1.0)), tasks)
    assert len(build(world).fill()) == count


# The order


def test_an_owner_that_got_a_task_comes_after_one_that_waits_for_longer():
    """Also if several of its jobs had been in front of that."""
    jobs = Job(owner=0), Job(owner=0), Job(owner=1)
    tasks = tuple(Task(k, 1.0) for k in range(3))
    world = World((Worker(3),), jobs, tasks, owners=((math.inf, 4.0), (math.inf, 4.0)))
    assert [c.pool.owner[-1] for c in build(world).fill()] == ["0", "1", "0"]


@given(worlds(owners=True, priorities=True))
def test_keys_that_are_kept_are_those_found_anew(world):
    built = build(world)
    built.order.check(built.pools, NOW)
    for choice in built.fill():
        assert choice.key.name in (choice.pool.name, "")
    built.order.check(built.pools, NOW)


@given(
    worlds(preferred=False, roots=False, scarce=False, owners=True, prefetch=False, shared=False)
)
def test_priorities_count_among_the_work_of_one_owner_only(world):
    """Those of one owner change nothing of who of the others is served, and how often."""
    world = replace(world, jobs=tuple(replace(j, owner=k % 2) for k, j in enumerate(world.jobs)))
    world = replace(world, lend=True)
    hers = [k for k in range(len(world.jobs)) if k % 2]
    shouted = replace(
        world, tasks=tuple(replace(t, priority=-5) if t.job in hers else t for t in world.tasks)
    )
    calm, loud = ([choice.pool.owner for choice in build(each).fill()] for each in (world, shouted))
    assert Counter(calm) == Counter(loud)


# Where


def next_end(slots):
    return 0.0 if slots.has_thread else slots.next_end(NOW)


@given(worlds(roots=False, scarce=False, capped=False, shared=False))
def test_a_task_is_moved_only_where_that_is_sooner_than_waiting_for_its_home(world):
    built = build(world)
    for task in built.fill():
        if task.preferred and task.worker not in task.preferred:
            fetch = built.fetch[task.ts]
            assert "moved" in task.why
            before = build(world)
            ends = min(next_end(before.places[home]) for home in task.preferred)
            line = max(len(p.ready) for p in before.pools)
            longest = max(t.seconds for t in world.tasks)  # inf if one takes nobody knows how long
            assert fetch < max(ends, next_end(built.places[task.preferred[0]])) + line * longest


@given(
    worlds(roots=False, scarce=False, capped=False, prefetch=False, shared=False, jobs=1, tasks=2)
)
def test_a_task_runs_at_home_while_a_thread_is_free_there(world):
    built = build(replace(world, lend=True))
    for task in built.fill():
        left = [a for a in task.preferred if built.places[a].has_thread]
        assert task.worker in task.preferred or not left


@given(worlds(roots=False, scarce=False, shared=False))
def test_a_task_waits_on_no_worker_while_a_home_of_it_has_a_free_thread(world):
    built = build(replace(world, lend=True))
    for choice in built.fill():
        if choice.start is None and choice.preferred:
            assert not any(built.places[home].has_thread for home in choice.preferred)


@given(worlds(preferred=False, scarce=False, shared=False))
def test_a_task_without_a_home_waits_on_no_worker_while_another_has_a_free_thread(world):
    world = replace(world, lend=True, saturation=math.inf)
    built = build(world)
    for choice in built.fill():
        if choice.start is None:
            assert not any(place.has_thread for place in built.places.values())


# Tasks that start together


@given(worlds(preferred=False, roots=False, scarce=False, shared=False, gangs=True, capped=False))
def test_the_ready_tasks_of_a_gang_start_all_or_none(world):
    world = replace(world, lend=True)
    built = build(world)
    threads = sum(worker.threads for worker in world.workers)
    counts = Counter(choice.pool for choice in built.fill())
    busy = {job for worker in world.workers for job, _ in worker.busy}
    for number, pool in enumerate(built.pools):
        tasks = sum(task.job == number for task in world.tasks)
        if pool.gang and number not in busy:
            assert counts[pool] in (0, tasks) or counts[pool] >= min(tasks, threads)


@given(worlds(capped=False), st.data())
def test_the_members_of_a_pinned_gang_start_all_or_none(world, data):
    numbers = st.integers(0, len(world.workers) - 1)
    jobs = st.integers(0, len(world.jobs) - 1)
    members = st.lists(numbers, min_size=1, unique=True).map(tuple)
    world = replace(world, pinned=tuple(data.draw(st.lists(st.tuples(jobs, members), max_size=3))))
    choices = build(world).fill()
    for number, (_, workers) in enumerate(world.pinned):
        mine = [c for c in choices if c.ts.startswith(f"gang-{number}-")]
        assert len(mine) in (0, len(workers))
        assert all(choice.start == NOW for choice in mine)


# Anticipation


def waits_for_its_return(gap, mean=1.0, index=0.0, service=0.0):
    """Return what is chosen for one thread beside a job that ended an iteration just now."""
    world = World(
        (Worker(1),), (Job(index=index), Job(service=9.0)), (Task(1, mean), Task(1, mean))
    )
    built = build(world)
    back = built.pools[0]
    back.service, back.gaps.mean, back.gaps.spell, back.gaps.width = service, gap, 1.0, 1.0
    back.gaps.left_at = NOW
    built.order.waiting.coming.add(back)
    return built.fill(), built.kept


@given(st.integers(0, 100).map(lambda n: n / 1000), st.integers(1, 100).map(lambda n: n / 1000))
def test_a_slot_is_kept_only_for_a_job_with_short_gaps_and_from_long_tasks(gap, mean):
    choices, kept = waits_for_its_return(gap, mean)
    assert kept == (gap < 0.020 and mean > 0.020)
    assert bool(choices) != kept


@given(worlds(roots=False, priorities=True))
def test_no_slot_is_kept_while_no_job_is_about_to_return(world):
    built = build(world)
    built.fill()
    assert not built.kept


# What is repeated, or empty


@given(worlds(owners=True, priorities=True, gangs=True))
def test_a_choice_that_is_not_sent_changes_nothing_and_is_made_again(world):
    built, untouched = build(world), build(world)
    first = next(iter(built.choices()), None)
    assert accounts(built) == accounts(untouched)
    built.order.check(built.pools, NOW)
    again = next(iter(built.choices()), None)
    assert again is first


@given(worlds(owners=True, priorities=True))
def test_a_second_turn_at_the_same_moment_finds_nothing_more(world):
    """What a turn leaves over is left for a reason that still holds."""
    built = build(world)
    built.fill()
    assert [c for c in built.fill() if c.start is not None] == []


@pytest.mark.parametrize("others", [True, False])
def test_what_is_loaded_is_used_before_more_is_loaded_if_others_want_the_slot(others):
    """The job of the highest index has data at a busy worker: its next load waits for others."""
    loads, uses = Task(0, 0.5, root=True, loads=True), Task(0, 0.5, preferred=(1,), fetch=9.0)
    world = World(
        (Worker(1), Worker(1, busy=((1, 1.0),))),
        (Job(index=2.0), Job(index=1.0)),
        (loads, uses, *(Task(1, 0.5, root=True, loads=True) for _ in range(others))),
    )
    (choice,) = (c for c in build(world).fill() if c.worker == "worker-0" and c.start)
    assert choice.pool.name == ("job-1" if others else "job-0")


# One situation each


def test_a_task_waits_at_its_home_for_the_resource_that_is_taken_there():
    task = Task(0, 1.0, preferred=(0,), fetch=2.0, gpu=True)
    world = World((Worker(2, True, ((1, 5.0),)), Worker(1, True)), (Job(), Job()), (task,))
    built = build(world)
    home = built.places["worker-0"]
    home.used_resources = {"GPU": 1.0}
    next(iter(home.tasks.values())).needs = GPU
    # A thread is free at home, but its GPU not for 5 s: it moves in 2 s.
    assert [choice.worker for choice in built.fill()] == ["worker-1"]


@pytest.mark.parametrize(("room", "started"), [(4, 4), (3, 2), (1, 0)])
def test_members_of_gangs_start_together_only_while_their_label_has_room_for_all(room, started):
    world = World((Worker(),) * 4, (Job(),), (), room=room, pinned=((0, (0, 1)), (0, (2, 3))))
    assert len(build(world).fill()) == started


def test_a_gang_that_needs_a_resource_starts_where_each_has_one():
    world = World((Worker(2, True),) * 2, (Job(gang=True),), (Task(0, 1.0, gpu=True),) * 2)
    found = build(world).fill()
    assert {choice.worker for choice in found} == {"worker-0", "worker-1"}
    assert all("all at once" in choice.why for choice in found)


@pytest.mark.parametrize(
    ("index", "others", "spare", "kept"),
    [(100.0, 1.0, False, True), (5.0, 4.0, False, False), (4.0, 4.0, True, False)],
)
def test_slots_are_kept_for_a_job_that_is_worth_much_more(index, others, spare, kept):
    jobs = Job(index=index), Job(index=others, service=1000.0 * spare)
    built = build(World((Worker(1),), jobs, (Task(1, 5.0),)))
    back, gaps = built.pools[0], built.pools[0].gaps
    gaps.width, gaps.mean, gaps.spell, gaps.left_at = 4.0, 0.001, 1.0, NOW
    back.group = Group(on_leftovers=spare)
    built.order.waiting.coming.add(back)
    assert (built.fill() == []) == kept


@pytest.mark.parametrize(
    ("left", "since", "kept"),
    [(0.04, 0.0, True), (5.0, 0.0, False), (0.04, 0.01, True), (0.04, 0.06, False)],
)
def test_a_job_does_not_load_all_on_one_worker_while_another_opens_soon(left, since, kept):
    """The others of its inputs would all be read there; and if others take what opens, not long."""
    tasks = Task(0, 1 / 1024, root=True, loads=True), Task(1, 1.0)
    world = World((Worker(1), Worker(1, busy=((1, left),))), (Job(), Job(paused=True)), tasks)
    built = build(world)
    built.pools[0].made_at["worker-0"], built.pools[0].kept_since = 4.0, NOW - since
    assert (built.fill() == []) == kept
    assert built.kept == kept


def test_no_task_of_a_search_is_sent_ahead_where_its_models_take_the_next_thread():
    world = World((Worker(1),), (Job(), Job()), (Task(0, 1.0), Task(1, 1.0)))
    built = build(world)
    slots, rules = Slots("w", nthreads=1, load=1), SlotRules(built.order, built, 1.0)
    search, job = built.pools
    for pool, may in ((search, False), (job, True)):
        slots.taken = [search.name]
        entry = next(iter(pool.ready.values()))
        entry.rootish = False
        assert rules.may(pool, entry, slots) is may
        slots.taken = []
        assert rules.may(pool, entry, slots)
