"""A model of a search on the virtual clock, where no thread can wait: it waits as a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


async def train(
    key: str,
    run: str,
    losses: Sequence[float],
    seconds: float,
    look: float = 0.2,
    before: Callable[[Any, int], Awaitable[None]] | None = None,
) -> None:
    """Report these losses from the task with this key, each after some seconds of computing.

    A model that must wait looks for its turn every `look` seconds. `before` each report the worker
    and the step are given to a function.
    """
    from distributed import get_worker
    from distributed.worker_state_machine import SecedeEvent

    from dask_slaq.core.trials import TrialEvent
    from dask_slaq.worker.trial_agent import agent_of
    from dask_slaq.worker.trial_slot import SlotState

    worker = get_worker()
    agent, seceded = agent_of(worker), False
    for step, loss in enumerate(losses):
        await asyncio.sleep(seconds)
        if before is not None:
            await before(worker, step)
        slot = agent.report(key, run, None, loss)
        if not agent.must_wait(slot):
            agent.send(slot, TrialEvent.REPORTS)
            continue
        if not seceded:
            event = SecedeEvent(key=key, compute_duration=seconds, stimulus_id=f"model-{key}")
            worker.handle_stimulus(event)
        seceded, slot.state = True, SlotState.STOPS
        agent.send(slot, TrialEvent.WAITS)
        while agent.must_wait(slot) and not agent.is_cancelled(slot):
            await asyncio.sleep(look)
        slot.state = SlotState.TRAINS
        agent.send(slot, TrialEvent.GOES, 0.1)
