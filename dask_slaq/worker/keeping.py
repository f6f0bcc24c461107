"""When the state of a trial is kept, and where: in Dask's memory, with a replica, or in a file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from threading import Event
from time import monotonic
from typing import Any

from distributed import Worker
from distributed.protocol import to_serialize

from dask_slaq.worker.carrying import Carrier
from dask_slaq.worker.states import (
    PATIENCE_SECONDS,
    KeptState,
    file_of,
    freeze,
    is_large,
    name_of,
    store,
    write,
)
from dask_slaq.worker.trial_slot import TrialSlot

logger = logging.getLogger(__name__)

#: Seconds after which the state of a trial that trains is kept again.
KEEP_SECONDS = 1.0


class StateKeeper:
    """Keeps the states of the trials of a worker; `send` tells the scheduler of one.

    Attributes
    ----------
    peer : str
        Address of the worker that takes replicas; empty if none does.
    """

    def __init__(
        self, worker: Worker, carrier: Carrier, send: Callable[[TrialSlot, Mapping[str, Any]], None]
    ) -> None:
        self._worker, self._carrier, self._send = worker, carrier, send
        self.peer = ""

    def must_keep(self, slot: TrialSlot, *, waits: bool) -> bool:
        """Return whether a copy of the state of a trial that stays here should be kept now."""
        states = slot.checkpoint
        if not states.can_be_kept or states.nbytes is None or not states.has_rested():
            return False
        if not waits and monotonic() - states.kept_at < KEEP_SECONDS:
            return False
        limit = self._worker.memory_manager.memory_limit
        memory = self._worker.monitor.get_process_memory()
        return not limit or memory + 2 * states.nbytes < 0.5 * limit

    def keep(self, slot: TrialSlot, *, leaves: bool = False) -> bool:
        """Keep the state that the present report was given. Returns whether it is kept.

        It is copied unless the model `leaves`.
        """
        states = slot.checkpoint
        begin, reports = monotonic(), states.begins + slot.reports
        if states.reports == reports:
            return True
        spare = states.has_rested()
        try:
            kept = freeze(states.offered, reports, slot.iterations, slot.number, copy=not leaves)
            kept.last = slot.last
            kept.streams = self._carrier.streams(slot.taken, waits=slot.waits) or {}
            if states.folder:
                write(file_of(states.folder, slot.key), kept)
        except Exception as error:
            states.unfit = True
            logger.error(
                "the state of %s cannot be kept: the model stays on its worker, and begins anew "
                "if it is lost (%r)",
                slot.key,
                error,
            )
            return False
        done = Event()
        kept.age = 0.0 if spare else begin - states.kept_at
        self._worker.loop.add_callback(self._store, slot, kept, done, spare)
        if leaves:
            done.wait(PATIENCE_SECONDS)  # what is large must be on disk before another model begins
            slot.unsent.took = monotonic() - begin
        states.reports = reports
        states.note(kept.nbytes, monotonic() - begin)
        return True

    def _store(self, slot: TrialSlot, kept: KeptState, done: Event, replicate: bool) -> None:
        """Tell the scheduler of a state, and put it where it is kept, on the event loop."""
        try:
            ts = self._worker.state.tasks.get(slot.key)
            name = name_of(slot.key, None if ts is None else ts.run_id, kept.reports)
            # What is large here would fill the memory of the other worker.
            fits = kept.nbytes <= 64e6 and not is_large(self._worker, kept)
            peer = self.peer if replicate and fits else ""
            in_dask = not slot.checkpoint.folder
            about = {"nbytes": kept.nbytes, "reports": kept.reports, "peer": peer}
            # The scheduler must know the key before Dask says that it is here.
            self._send(slot, {"name": name if in_dask else "", **about})
            if in_dask:
                store(self._worker, name, kept)
                if peer:
                    self._worker.loop.add_callback(self._copy, name, kept, peer)
        finally:
            done.set()

    async def _copy(self, name: str, kept: KeptState, peer: str) -> None:
        """Put a replica of a state on another worker."""
        try:
            await self._worker.rpc(peer).update_data(data={f"{name}-2": to_serialize(kept)})
        except (OSError, RuntimeError):  # the latter if this worker closes
            logger.debug("a replica of %s is not on %s", name, peer, exc_info=True)
