"""States of models, in Dask's memory or in files, from which they go on on any worker."""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import stat
import threading
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from distributed import Reschedule, Worker
from distributed.protocol import pickle as dask_pickle
from distributed.worker import get_data_from_worker

from dask_slaq.core.jobs.reports import Iterations

logger = logging.getLogger(__name__)

#: Annotation of a task with what is known of its state, and of a search that keeps them in files.
STATE, FILES = "slaq_state", "slaq_states"
#: Annotation of a task that goes on from the state of another one: the key of that.
FROM = "slaq_from"
#: Types of callables that make a state when it is needed.
MAKERS = (FunctionType, BuiltinFunctionType, MethodType, partial)
#: Names of the keys of states in Dask's memory begin with this.
PREFIX = "slaq-state"
#: Seconds after which a state that is on its way is asked for elsewhere.
PATIENCE_SECONDS = 30.0


class Leave(BaseException):
    """Raised in a report to take a model off its worker, with its state kept.

    ``except Exception`` in user code does not catch it, ``finally`` blocks run. Dask asks whether
    what left a task is a `Reschedule`, and gives the task back to the scheduler.
    """

    @property  # type: ignore[misc]  # it can be one
    def __class__(self) -> type:  # what `isinstance` asks for
        return Reschedule


class Mark(NamedTuple):
    """State of a training that its function does not pass itself; `kind` tells what kept it."""

    kind: str
    trial: Hashable
    state: Any


class _Here(threading.local):
    """What is known of the task that runs in this thread. A run is as of `this_run`."""

    asked: Any = None  # run whose function has asked for its state itself
    began: Any = None  # run in which a training has begun whose state is kept by itself
    loop: tuple[Any, Any] | None = None  # run of a loop by `steps`, and what makes its state


here = _Here()


@dataclass(slots=True, eq=False)
class KeptState:
    """Pickled state after some reports of a task; its buffers move without being copied."""

    body: Any
    buffers: list[Any]
    reports: int
    iterations: Iterations
    number: Hashable
    age: float = 0.0  # seconds since a state of the task was copied to another worker
    last: tuple[float, Mapping[str, float]] | None = None  # loss and others of the last report
    streams: Mapping[str, Any] = field(default_factory=dict)  # random generators, see `Carrier`

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return sum(memoryview(part).nbytes for part in (self.body, *self.buffers))

    def __sizeof__(self) -> int:
        """Return the size in bytes, for Dask."""
        return self.nbytes

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle without a copy of the buffers where the protocol can."""
        parts = [pickle.PickleBuffer(part) for part in self.buffers]
        about = self.reports, self.iterations, self.number, self.age, self.last, self.streams
        return KeptState, (self.body, parts, *about)

    def thaw(self, *, copy: bool) -> Any:
        """Return the state: a `copy`, or with the buffers, which nobody else may have then."""
        parts = [memoryview(part) for part in self.buffers]
        own = [bytearray(b) if copy or b.readonly else b for b in parts]
        return dask_pickle.loads(self.body, buffers=own)


def freeze(
    state: Any, reports: int, iterations: Iterations, number: Hashable, *, copy: bool
) -> KeptState:
    """Pickle a state, or what it returns if it is a function.

    Models may be callable, too: they are states themselves. Without a `copy` its arrays are shared,
    which may not change any more. Raises whatever pickle raises.
    """
    buffers: list[pickle.PickleBuffer] = []
    made = state() if isinstance(state, MAKERS) else state
    body = dask_pickle.dumps(made, buffer_callback=buffers.append)
    raw: list[Any] = [buffer.raw() for buffer in buffers]
    if copy:
        raw = [bytearray(part) for part in raw]
    return KeptState(body, raw, reports, replace(iterations), number)


def name_of(key: Hashable, run_id: Any, reports: int) -> str:
    """Return the key of a state in Dask's memory."""
    return f"{PREFIX}-{key}-{run_id}-{reports}"


def is_large(worker: Worker, kept: KeptState, part: float = 0.05) -> bool:
    """Return whether a state takes more than a part of a worker's memory: it goes to disk."""
    limit = worker.memory_manager.memory_limit
    return bool(limit) and kept.nbytes > part * limit  # type: ignore[operator]


def store(worker: Worker, name: str, kept: KeptState) -> None:
    """Put a state into the memory of a worker, or on its disk if it is large. On its event loop."""
    worker.update_data(data={name: kept})
    data = worker.data
    if is_large(worker, kept):
        fast: Any = getattr(data, "fast", ())
        while name in fast and data.evict() > 0:  # type: ignore[attr-defined]
            pass


async def fetch(worker: Worker, names: list[str]) -> tuple[KeptState | None, bool]:
    """Return the first of some states that is here, or that another worker has; None without.

    Also returns whether it is in use here as well.
    """
    begin = monotonic()
    while monotonic() - begin < PATIENCE_SECONDS:
        for name in names:
            if name in worker.data:
                return _local(worker, name)
        who_has = await worker.scheduler.who_has(keys=names)
        others = [(n, a) for n in names for a in who_has.get(n) or () if a != worker.address]
        busy = False
        for name, address in others:
            try:
                answer: Any = await get_data_from_worker(worker.rpc, [name], address)
            except OSError:
                continue
            busy = busy or answer["status"] == "busy"
            if name in answer.get("data", {}):
                value = answer["data"][name]
                is_inproc = address.startswith("inproc:")
                return (value, is_inproc) if isinstance(value, KeptState) else (None, False)
        if not busy:
            break
    return None, False


def _local(worker: Worker, name: str) -> tuple[KeptState, bool]:
    # What is on disk stays there: it will not be used again.
    data: Any = worker.data
    slow = getattr(data, "slow", None)
    if slow is not None and name not in data.fast and name in slow:
        return slow[name], False
    return data[name], True


# Files


_refused: set[str] = set()  # folders of which that was logged


def safe_folder(folder: str | None) -> str:
    """Return a folder of states, or none if others may write there: what is read is unpickled.

    Then Dask keeps the states, after one error in the log.
    """
    if not folder:
        return ""
    try:
        why = _refusal(folder)
    except OSError as error:
        why = str(error)
    except (ImportError, ValueError):  # which whoever writes there tells
        why = ""
    if why and folder not in _refused:
        _refused.add(folder)
        logger.error(
            "no states are kept in or read from %r, for whoever writes there runs code here: %s; "
            "make it a folder of the user of the workers alone (chmod 700)",
            folder,
            why,
        )
    return "" if why else folder


def _refusal(folder: str) -> str:
    """Return why a folder of this machine is not safe; empty for others and for a safe one."""
    import fsspec

    system, where = fsspec.core.url_to_fs(folder)
    if os.name != "posix" or not _is_local(system):
        return ""
    path, user = Path(where).resolve(), os.geteuid()
    for each in (path, *path.parents):
        if not each.exists():
            continue
        at = each.stat()
        if each == path:
            if at.st_uid not in (user, 0):
                return f"it belongs to another user ({at.st_uid})"
            if at.st_mode & stat.S_IWOTH or (at.st_mode & stat.S_IWGRP and at.st_gid != user):
                return f"others may write it (mode {stat.S_IMODE(at.st_mode):o})"
        elif at.st_mode & stat.S_IWOTH and not at.st_mode & stat.S_ISVTX:  # others replace it
            return f"others may write {each} (mode {stat.S_IMODE(at.st_mode):o})"
    return ""


def _is_local(system: Any) -> bool:
    return "file" in system.protocol


def file_of(folder: str, key: Hashable) -> str:
    """Return the path of the state of a task in the folder of its search."""
    return f"{folder}/{hashlib.sha256(str(key).encode()).hexdigest()[:32]}.state"


def write(path: str, kept: KeptState) -> None:
    """Write a state to a file, by fsspec; an earlier one is there until this is complete."""
    import fsspec

    system, where = fsspec.core.url_to_fs(path)
    if _is_local(system):
        os.makedirs(where.rpartition("/")[0], 0o700, exist_ok=True)
    else:
        system.makedirs(where.rpartition("/")[0], exist_ok=True)
    with system.open(f"{where}.part", "wb") as file:
        pickle.dump(kept, file, protocol=5)
    system.mv(f"{where}.part", where)


def read(path: str) -> KeptState | None:
    """Return the state in a file; None if there is none."""
    import fsspec

    try:
        with fsspec.open(path, "rb") as file:
            found = pickle.load(file)
    except FileNotFoundError:
        return None
    return found if isinstance(found, KeptState) else None
