"""Runner of scenarios on the virtual clock, under plain Dask or with the plugin."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks import virtual
from benchmarks.never_worse import probe as probes
from benchmarks.never_worse.scenarios import Event, Participant, Scenario
from benchmarks.never_worse.shapes import SHAPES

#: Virtual seconds after which a scenario counts as stuck.
LIMIT = 120.0
#: Seconds after which a participant that leaves early leaves its block.
LEFT_EARLY = 0.3


@dataclass
class Outcome:
    """Outcome of a run, by participant; times are virtual seconds since its start.

    A result is that of the work, or the name and text of the error. `left_over` is state that
    should not exist after all participants have left. The probe's times are absolute, and `begin`
    is the absolute time of the start.
    """

    results: dict[str, Any] = field(default_factory=dict)
    started: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)
    reports: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    left_over: list[str] = field(default_factory=list)
    probe: probes.Probe = field(default_factory=probes.Probe)
    begin: float = 0.0

    @property
    def makespan(self) -> float:
        """Seconds from the first start to the last end."""
        return max(self.ended.values()) - min(self.started.values())

    def t90(self) -> dict[str, float]:
        """Return the seconds in which the loss of each training falls by 90 % of its whole fall."""
        found = {}
        for name, reports in self.reports.items():
            first, last = reports[0][1], reports[-1][1]
            enough = next(at for at, loss in reports if first - loss >= 0.9 * (first - last))
            found[name] = enough - self.started[name]
        return found


def run(scenario: Scenario, policy: str, bandwidth: float = math.inf) -> Outcome:
    """Run a scenario under a policy; `none` is plain Dask.

    A worker sends `bandwidth` bytes per second.
    """
    outcome = Outcome()
    probes.current.append(outcome.probe)
    try:
        virtual.run(_run, scenario, policy, outcome, bandwidth, seed=scenario.seed, limit=2 * LIMIT)
    finally:
        probes.current.pop()
    return outcome


async def _run(scenario: Scenario, policy: str, outcome: Outcome, bandwidth: float) -> None:
    resources = [{"GPU": 1}] * len(scenario.threads)
    # Dask's own checks are expensive (all waiting tasks at each step), so only some runs have them.
    config = {"distributed.scheduler.validate": scenario.seed % 4 == 0}
    async with virtual.Cluster(
        scenario.threads, resources=resources, bandwidth=bandwidth, config=config
    ) as cluster:
        await outcome.probe.start(cluster.scheduler)
        cluster.scheduler.add_plugin(outcome.probe)
        async with cluster.client() as client:
            if policy != "none":
                import dask_slaq as slaq

                await client.register_plugin(slaq.SlaqPlugin(policy=policy))
            outcome.begin = virtual.now()
            clients: dict[str, Any] = {}
            running = {
                person.name: asyncio.ensure_future(
                    _take_part(person, cluster, policy, outcome, clients)
                )
                for person in scenario.participants
                if person.kind != "idle"
            }
            idle = [
                asyncio.ensure_future(_stay_idle(person, cluster, policy, running))
                for person in scenario.participants
                if person.kind == "idle"
            ]
            happens = scenario.events if policy != "none" else []
            events = asyncio.ensure_future(_let_happen(happens, clients, running))
            _done, pending = await asyncio.wait(running.values(), timeout=LIMIT)
            for task in pending:
                task.cancel()
            outcome.left_over += [f"{n} has not ended" for n, t in running.items() if t in pending]
            await asyncio.gather(*running.values(), *idle, return_exceptions=True)
            await events
            await asyncio.sleep(3.0)
            outcome.left_over += _left_over(cluster.scheduler)
            outcome.probe.stop()


async def _take_part(
    person: Participant, cluster: Any, policy: str, outcome: Outcome, clients: dict[str, Any]
) -> None:
    await asyncio.sleep(person.start)
    async with cluster.client(name=f"client-{person.name}") as client:
        clients[person.name] = client
        outcome.started[person.name] = virtual.now() - outcome.begin
        try:
            outcome.results[person.name] = await _compute(person, client, policy, outcome)
        except asyncio.CancelledError:
            outcome.results[person.name] = "cancelled"
            raise
        except Exception as error:
            outcome.results[person.name] = f"{type(error).__name__}: {error}"[:200]
        outcome.ended[person.name] = virtual.now() - outcome.begin


async def _compute(person: Participant, client: Any, policy: str, outcome: Outcome) -> Any:
    for turn in range(1, person.repeat):
        await _compute_once(person, client, policy, outcome, turn)
    return await _compute_once(person, client, policy, outcome)


async def _compute_once(
    person: Participant, client: Any, policy: str, outcome: Outcome, turn: int = 0
) -> Any:
    shape = SHAPES[person.shape]
    async with _block(person, client, policy) as report:
        parameters = dict(person.parameters)
        if person.shape == "iterating":
            reports = outcome.reports.setdefault(person.name, [])

            def record(loss: float) -> None:
                reports.append((virtual.now() - outcome.begin, loss))
                report(loss)

            parameters["report"] = record
        task = asyncio.ensure_future(shape(client, f"{person.name}.{turn}", **parameters))
        if person.early:
            await asyncio.sleep(LEFT_EARLY)
        else:
            return await task
    return await task


@contextlib.asynccontextmanager
async def _block(
    person: Participant, client: Any, policy: str
) -> AsyncIterator[Callable[[float], None]]:
    """Open the job block of a participant, or nothing for unowned tasks and under plain Dask."""
    if policy == "none" or person.kind in ("stray", "newcomer"):
        yield lambda loss: None
        return
    import dask_slaq as slaq

    gang = person.shape == "waiting_for_each_other"
    announced = person.announced
    if announced is None:
        announced = {"max_iter": person.parameters.get("iterations")}
    async with slaq.job(person.name, client=client, gang=gang, **announced) as job:
        yield job.report


async def _stay_idle(
    person: Participant, cluster: Any, policy: str, running: dict[str, Any]
) -> None:
    await asyncio.sleep(person.start)
    async with cluster.client() as client, _block(person, client, policy):
        await asyncio.wait(running.values())


async def _let_happen(
    events: list[Event], clients: dict[str, Any], running: dict[str, Any]
) -> None:
    import dask_slaq as slaq

    begin, name = virtual.now(), next(iter(running))
    for event in events:
        await asyncio.sleep(max(begin + event.at - virtual.now(), 0.0))
        if not running[name].done():
            steer = slaq.pause if event.kind == "job_pauses" else slaq.unpause
            await steer(name, client=clients[name])


def _left_over(scheduler: Any) -> list[str]:
    """List the state on the scheduler that remains after all participants have left."""
    found = [f"task {key}" for key in scheduler.tasks]
    plugin = scheduler.plugins.get("slaq")
    if plugin is not None:
        if plugin.failed:
            found.append(f"plugin fell back: {plugin.failed}")
        found += plugin.pools.left_over()
    return found
