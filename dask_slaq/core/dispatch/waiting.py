"""Index of the ready tasks of all pools: which pools have any, and what these wait for."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from dask_slaq.core.dispatch.ready import is_plain

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.contender import Contender
    from dask_slaq.core.dispatch.ready import Entry


class Waiting:
    """Pools that have ready tasks, and by what these wait for. Pools keep it up to date."""

    def __init__(self) -> None:
        self.pools: dict[Contender, None] = {}  # with a ready task
        self.scarce: dict[Contender, int] = {}  # with kinds of their own: their number
        self.together: dict[Contender, None] = {}  # whose ready tasks must start together
        self.sent_by_dask: dict[Contender, None] = {}  # with tasks on workers that Dask has sent
        self.coming: set[Contender] = set()  # whose gaps without ready tasks are short
        self.movable = 0  # filed tasks that are no root tasks and have no home
        self.at: dict[str, dict[Contender, int]] = {}  # number of filed tasks by home; "" for none

    def file(self, pool: Contender, entry: Entry) -> None:
        """Count a ready task of a pool at its homes."""
        self.movable += not (entry.rootish or entry.homes)
        for home in entry.homes or ("",):
            here = self.at.get(home)
            if here is None:
                here = self.at[home] = {}
            here[pool] = here.get(pool, 0) + 1

    def remove(self, pool: Contender, entry: Entry) -> None:
        """Count a task of a pool no longer."""
        self.movable -= not (entry.rootish or entry.homes)
        for home in entry.homes or ("",):
            here = self.at[home]
            here[pool] -= 1
            if not here[pool]:
                del here[pool]
                if not here:
                    del self.at[home]

    def forget(self, pool: Contender) -> None:
        """Forget a pool that was closed."""
        for some in (self.pools, self.scarce, self.together, self.sent_by_dask):
            some.pop(pool, None)
        self.coming.discard(pool)

    def check(self, pools: Collection[Contender]) -> None:
        """Raise `AssertionError` unless the index agrees with the `pools`."""
        assert self.pools.keys() == {pool for pool in pools if pool.ready}, "pools that wait"
        assert self.together.keys() == {p for p in pools if p.ready and p.gang}, "gangs"
        assert self.sent_by_dask.keys() == {pool for pool in pools if pool.sent_by_dask}, (
            "tasks sent by Dask"
        )
        scarce = {pool: sum(not is_plain(kind) for kind in pool.kinds) for pool in pools}
        assert self.scarce == {pool: n for pool, n in scarce.items() if n}, "kinds of tasks"
        entries = [(p, e) for p in pools for e in p.ready.values() if e in p.kinds.get(e.kind, ())]
        movable = sum(not (entry.rootish or entry.homes) for _, entry in entries)
        assert self.movable == movable, "tasks that any worker may take"
        at: dict[str, dict[Contender, int]] = {}
        for pool, entry in entries:
            for home in entry.homes or ("",):
                here = at.setdefault(home, {})
                here[pool] = here.get(pool, 0) + 1
        assert self.at == at, "tasks by home"
