"""Faults of reports: late, repeated, malformed, or for another client's job.

See `benchmarks.chaos.faults` for the arguments.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchmarks.chaos.rounds import Fault
    from benchmarks.chaos.running import Stage


async def report_late(fault: Fault, stage: Stage) -> None:
    """Send a report of a job after the job has ended."""
    if (name := stage.person(fault.number)) and name in stage.blocks:
        block = stage.blocks[name]
        for _ in range(100):
            if block._client is None:
                break
            await asyncio.sleep(0.05)
        _send(stage, name, job=block.name, run=block._run, loss=0.5)


async def report_twice(fault: Fault, stage: Stage) -> None:
    """Send a report twice."""
    if (name := stage.person(fault.number)) and name in stage.blocks:
        block = stage.blocks[name]
        for _ in range(2):
            _send(stage, name, job=block.name, run=block._run, loss=0.25)


async def report_malformed(fault: Fault, stage: Stage) -> None:
    """Send malformed reports."""
    nonsense: list[dict[str, Any]] = [
        {}, {"job": None, "loss": 1.0}, {"job": ["a"], "loss": 1.0}, {"job": {"a": 1}},
        {"job": "x" * 10**6, "loss": 1}, {"loss": float("nan")}, {"loss": "much"},
        {"loss": [1.0]}, {"loss": 10**400}, {"loss": b"1", "client": 3},
        {"loss": True}, {"loss": 1.0, "run": ["r"]}, {"loss": 1.0, "run": 7, "worker": None},
    ]  # fmt: skip
    if name := stage.person(fault.number):
        block = stage.blocks.get(name)
        for i in range(30):
            message = nonsense[(fault.number + i) % len(nonsense)]
            known = {"job": block.name, "run": block._run} if block else {}
            _send(stage, name, **{**known, **message})
        stage.clients[name]._send_to_scheduler(
            {"op": "slaq-expect", "job": block and block.name, "iterations": "many"}
        )


async def report_for_another(fault: Fault, stage: Stage) -> None:
    """Report for other clients' jobs, and try to close these jobs."""
    plugin, name = stage.plugin, stage.person(fault.number)
    if not name or plugin is None:
        return
    client = stage.clients[name]
    others = [j for j in plugin.jobs.names() if plugin.pools.pools[j].client != client.id]
    for job in others:
        runs, before = plugin.jobs.owned(job, ""), plugin.jobs.epochs
        losses = plugin.engine.jobs[job].loss
        _send(stage, name, job=job, loss=-1e6)
        try:
            await client.scheduler.slaq_close(name=job, client=client.id)
        except Exception:
            pass
        else:
            assert not plugin.jobs.runs(job), f"{name} ended {job}"
        if plugin.jobs.runs(job, runs):
            assert plugin.engine.jobs[job].loss != -1e6, f"{name} reported for {job}: {losses}"
        assert before is plugin.jobs.epochs


def _send(stage: Stage, name: str, **report: Any) -> None:
    stage.clients[name]._send_to_scheduler({"op": "slaq-report", **report})
