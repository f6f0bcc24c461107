"""Stage of a round: the running cluster on which faults act."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from distributed.client import ClosedClientError, FutureCancelledError, FuturesCancelledError

from benchmarks import virtual
from benchmarks.chaos.outcome import Outcome
from benchmarks.chaos.rounds import Round

#: Seconds after a fault in which it excuses errors, since a suspended client notices it late.
EXCUSED = 6.0
#: Types of errors that cancelled work raises.
CANCELLED = FutureCancelledError, FuturesCancelledError, ClosedClientError, OSError


@dataclass
class Stage:
    """Running round on which faults act. The `admin` client computes nothing.

    `clients`, `blocks` and `running` are the client, current job block and asyncio task of each
    participant, and `hit` the virtual time when its work was last cancelled; it may then start
    over. The newest of `plugins` is the first.
    """

    round: Round
    cluster: Any
    admin: Any
    outcome: Outcome
    log: str
    clients: dict[str, Any] = field(default_factory=dict)
    blocks: dict[str, Any] = field(default_factory=dict)
    running: dict[str, Any] = field(default_factory=dict)
    hit: dict[str, float] = field(default_factory=dict)
    plugins: list[Any] = field(default_factory=list)

    @property
    def plugin(self) -> Any:
        """The registered plugin, or None."""
        return self.cluster.scheduler.plugins.get(self.plugin_name)

    @property
    def plugin_name(self) -> str:
        """Name under which the plugin is registered; empty if it is not."""
        from dask_slaq.scheduler.current import registered_plugin

        plugin = registered_plugin(self.cluster.scheduler)
        plugins = self.cluster.scheduler.plugins.items()
        return next((name for name, one in plugins if one is plugin), "")

    def person(self, number: int) -> str | None:
        """Select a participant whose client is connected, None if there is none."""
        names = sorted(n for n, client in self.clients.items() if client.status == "running")
        return names[number % len(names)] if names else None

    def strike(self, *names: str) -> None:
        """Record that the work of these participants is cancelled now."""
        self.hit.update(dict.fromkeys(names, virtual.now()))

    def was_hit(self, name: str, since: float) -> bool:
        """Return whether the work of `name` was cancelled after `since`, or shortly before it.

        A client that submits many futures only notices when it gathers them."""
        return self.hit.get(name, -math.inf) > since - EXCUSED

    async def register(self, name: str = "slaq") -> None:
        """Register a new plugin."""
        import dask_slaq as slaq

        plugin = slaq.SlaqPlugin(
            policy=self.round.policy, lend=self.round.lend, epoch="200ms", log=self.log
        )
        await self.admin.register_plugin(plugin, name=name)
        if self.plugin not in self.plugins:
            self.plugins.insert(0, self.plugin)
