"""Runner of rounds on the virtual clock, with or without their faults."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import virtual
from benchmarks.chaos.faults import HAPPEN, pending_cleanups
from benchmarks.chaos.outcome import Outcome, replay_log, silence, watch
from benchmarks.chaos.rounds import Person, Round
from benchmarks.chaos.stage import CANCELLED, Stage
from benchmarks.never_worse import probe as probes
from benchmarks.never_worse.shapes import SHAPES

#: Virtual seconds after which a participant that has not ended counts as lost.
LIMIT = 200.0
#: Maximum attempts of a participant whose work faults have cancelled.
MOST_ATTEMPTS = 40
CONFIG = {
    "distributed.scheduler.validate": True,
    "distributed.scheduler.allowed-failures": 10_000,
    "distributed.comm.timeouts.connect": "5s",
}


def run(made: Round, *, faults: bool = True, plugin: bool = True) -> Outcome:
    """Run a round, with the faults or without, and with the plugin or without."""
    outcome = Outcome()
    probes.current.append(probes.Probe())
    try:
        with silence(), watch(outcome), tempfile.TemporaryDirectory() as directory:
            log = str(Path(directory) / "slaq.jsonl")
            virtual.run(_run, made, outcome, log, faults, plugin, seed=made.seed, limit=2 * LIMIT)
            if plugin:
                replay_log(log, outcome)
    except Exception as error:
        outcome.broken.append(f"the round ended: {type(error).__name__}: {error}")
        outcome.notes.append(traceback.format_exc())
    finally:
        probes.current.pop()
    return outcome


async def _run(made: Round, outcome: Outcome, log: str, faults: bool, plugin: bool) -> None:
    resources = [{"GPU": 1}] * len(made.threads)
    async with (
        virtual.Cluster(made.threads, resources=resources, config=CONFIG) as cluster,
        cluster.client() as admin,
    ):
        stage = Stage(made, cluster, admin, outcome, log)
        if plugin:
            await stage.register()
        for person in made.people:
            stage.running[person.name] = asyncio.ensure_future(_take_part(person, stage))
        begin, ends = virtual.now(), [0.0]
        for task in stage.running.values():
            task.add_done_callback(lambda _: ends.append(virtual.now() - begin))
        happening = asyncio.ensure_future(_let_happen(stage) if faults else asyncio.sleep(0))
        _, pending = await asyncio.wait(stage.running.values(), timeout=LIMIT)
        outcome.ended = ends[-1]
        for name, task in stage.running.items():
            if task in pending:
                outcome.results[name] = "lost: has not ended"
                outcome.notes += [_why_waiting(name, stage)]
                _excuse_unconnected(name, stage)
                if name not in outcome.excused:
                    outcome.ended = LIMIT
                task.cancel()
        await asyncio.gather(*stage.running.values(), return_exceptions=True)
        await happening
        await asyncio.sleep(3.0)
        outcome.left_over += _left_over(stage)
        for one in stage.plugins:
            await one.close()


def _excuse_unconnected(name: str, stage: Stage) -> None:
    """Excuse a participant whose client Dask failed to reconnect.

    `Client._reconnect` fails if the scheduler's answer arrives together with other messages.
    """
    client = stage.clients.get(name)
    if client is not None and client.status == "connecting":
        stage.outcome.excused.add(name)
        stage.cluster.scheduler.remove_client(client.id)


def _why_waiting(name: str, stage: Stage) -> str:
    tasks = stage.cluster.scheduler.tasks.values()
    mine = [ts for ts in tasks if probes.who_of(ts.key) == name and ts.state != "memory"]
    states = Counter(ts.state for ts in mine)
    return f"{name} waits: {dict(states)} {[(ts, ts.worker_restrictions) for ts in mine[:3]]}"


async def _take_part(person: Person, stage: Stage) -> None:
    await asyncio.sleep(person.start)
    results = stage.outcome.results
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(stage.cluster.client(name=f"client-{person.name}"))
        stage.clients[person.name] = client
        found: list[Any] = []
        results[person.name] = found
        try:
            for number in range(len(person.things)):
                found.append(await _compute_at_last(person, number, client, stage))
        except Exception as error:
            results[person.name] = f"lost: {type(error).__name__}: {error}"[:200]
            stage.outcome.notes.append("".join(traceback.format_exception(error))[-1500:])
        stage.clients.pop(person.name, None)


async def _compute_at_last(person: Person, number: int, client: Any, stage: Stage) -> Any:
    """Compute one thing, and start over whenever faults have cancelled it."""
    for attempt in range(MOST_ATTEMPTS):
        begun = virtual.now()
        try:
            return await _compute(person, number, attempt, client, stage)
        except Exception as error:
            if not (stage.was_hit(person.name, begun) and isinstance(error, CANCELLED)):
                raise
        if client.status == "closed":  # Dask gave up reconnecting it
            stage.outcome.excused.add(person.name)
        if person.name in stage.outcome.excused:
            return None
        await asyncio.sleep(1.0)
    raise RuntimeError("begun anew too often")


async def _compute(person: Person, number: int, attempt: int, client: Any, stage: Stage) -> Any:
    """Compute one thing.

    Every attempt has keys of its own: cancelled futures live on in reference cycles until they are
    collected, and new futures of their keys would be cancelled as well.
    """
    shape, parameters = person.things[number]
    tag, parameters = f"{person.name}.{number}", dict(parameters)
    async with contextlib.AsyncExitStack() as stack:
        report = lambda loss: None  # noqa: E731
        if stage.plugin is not None and not person.stray:
            report = await _open_block(person, tag, client, stage, stack)
        if shape == "iterating":
            parameters["report"] = report
        if attempt:
            tag += f"{probes.ATTEMPT}{attempt}"
        return await SHAPES[shape](client, tag, **parameters)


async def _open_block(
    person: Person, tag: str, client: Any, stage: Stage, stack: contextlib.AsyncExitStack
) -> Any:
    import dask_slaq as slaq
    from dask_slaq.core.errors import SlaqError

    try:
        block = await stack.enter_async_context(slaq.job(f"job-{tag}", client=client))
    except SlaqError as error:
        # The plugin was unregistered, the name is still in use, or the client is closed.
        stage.outcome.notes.append(f"{tag} without a block: {error}"[:150])
        return lambda loss: None
    stage.blocks[person.name] = block
    block.report(1.0)
    return block.report


async def _let_happen(stage: Stage) -> None:
    begin, going = virtual.now(), []
    for fault in stage.round.faults:
        await asyncio.sleep(max(begin + fault.at - virtual.now(), 0.0))
        stage.outcome.faults[fault.kind] += 1
        going.append(asyncio.ensure_future(_happen(fault, stage)))
    await asyncio.gather(*going)
    stage.outcome.quiet = virtual.now() - begin
    for clean_up in pending_cleanups:
        clean_up()
    pending_cleanups.clear()


async def _happen(fault: Any, stage: Stage) -> None:
    try:
        await HAPPEN[fault.kind](fault, stage)
    except AssertionError as error:
        stage.outcome.broken.append(f"{fault.kind}: {error}")
    except Exception as error:
        stage.outcome.notes.append(f"{fault.kind} raised {type(error).__name__}: {error}"[:200])


def _left_over(stage: Stage) -> list[str]:
    """List the state on the scheduler that remains after all participants have left."""
    scheduler = stage.cluster.scheduler
    found = [f"task {ts}" for ts in scheduler.tasks.values()]
    found += [f"{len(scheduler.unrunnable)} tasks wait for workers"] * bool(scheduler.unrunnable)
    for plugin in stage.plugins:
        found += plugin.pools.left_over()
        found += [f"job {name} in the engine" for name in plugin.engine.jobs]
        if plugin.timer.is_running():
            found.append("the timer of epochs")
        if plugin is stage.plugin and not plugin.failed:
            plugin.pools.check()
    return found
