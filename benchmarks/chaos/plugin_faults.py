"""Faults of the plugin itself: parts that raise, and registrations at the wrong time.

See `benchmarks.chaos.faults` for the arguments.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from benchmarks.chaos.outcome import Deliberate

if TYPE_CHECKING:
    from benchmarks.chaos.rounds import Fault
    from benchmarks.chaos.running import Stage

#: Functions that undo prepared faults which have not happened yet.
pending_cleanups: list[Callable[[], None]] = []


async def engine_raises(fault: Fault, stage: Stage) -> None:
    """Make the engine raise once."""
    if stage.plugin is not None:
        await _fail(stage, stage.plugin.engine, "reallocate")


async def dispatcher_raises(fault: Fault, stage: Stage) -> None:
    """Make the dispatcher raise once, at the start, while it chooses, or while it sends a task."""
    if stage.plugin is not None:
        pools = stage.plugin.pools
        places = [(pools, "dispatch"), (pools.dispatcher, "key"), (pools.control, "send")]
        await _fail(stage, *places[fault.number % 3])


async def hook_raises(fault: Fault, stage: Stage) -> None:
    """Make one of the plugin's hooks raise once."""
    if stage.plugin is not None:
        plugin = stage.plugin
        places = [
            (plugin.pools.tracker, "transition"),
            (plugin.pools, "apply"),
            (plugin.pools, "tick"),
            (plugin.pools, "forget_worker"),
            (plugin.task_owners, "own"),
            (plugin.jobs, "observe_demand"),
        ]
        await _fail(stage, *places[fault.number % len(places)])


async def _fail(stage: Stage, owner: Any, name: str) -> None:
    """Make the next call of a method raise, and register a new plugin if this one failed."""
    if name in vars(owner):
        return

    def fails(*args: Any, **kwargs: Any) -> Any:
        undo()
        raise Deliberate(name)

    def undo() -> None:
        vars(owner).pop(name, None)

    plugin = stage.plugin
    setattr(owner, name, fails)
    pending_cleanups.append(undo)
    for _ in range(20):
        await asyncio.sleep(0.05)
        if plugin.failed:
            break
    undo()
    await asyncio.sleep(0.3)
    if plugin.failed and stage.plugin is plugin:
        stage.outcome.faults["plugin_registered_again"] += 1
        await stage.register()


async def plugin_registered_twice(fault: Fault, stage: Stage) -> None:
    """Register the plugin again: refused while jobs run; otherwise the new one takes over."""
    before = stage.plugin
    if before is None:
        return
    jobs = not before.failed and before.jobs.names()
    try:
        await stage.register()
    except Exception as error:
        assert "must end before" in str(error), error
        assert stage.plugin is before or stage.plugin is None, "the plugin was replaced"
    else:
        assert not jobs or before.jobs.names() != jobs or before.failed, "replaced beside jobs"


async def plugin_unregistered(fault: Fault, stage: Stage) -> None:
    """Unregister the plugin, and register it again at once or after some epochs."""
    if stage.plugin is not None:
        await stage.admin.unregister_scheduler_plugin("slaq")
        await asyncio.sleep(fault.number % 3 / 3)
        if stage.plugin is None:
            await stage.register()
