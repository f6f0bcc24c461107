"""Jobs of one owner, which share its tokens and its limit."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_slaq.scheduler.dispatch.pool import Pool


@dataclass(eq=False)
class Group:
    """Pools of one owner.

    Attributes
    ----------
    pools : list of Pool
    most : float
        Maximum number of tasks that hold a slot; inf for no limit.
    tokens : float
        Core-seconds to be served before any index.
    """

    pools: list[Pool] = field(default_factory=list)
    most: float = math.inf
    tokens: float = 0.0

    def has_room(self) -> bool:
        """Return whether another task may start."""
        return self.most == math.inf or self.running + 1 <= self.most

    @property
    def running(self) -> int:
        """Number of tasks that hold a slot."""
        return sum(len(pool.running) for pool in self.pools)

    def is_behind(self) -> bool:
        """Return whether the owner must be served before the order by index."""
        return self.tokens > 0
