"""What else differs between two runs: random numbers, addresses and hashes."""

from __future__ import annotations

import contextlib
import random
import uuid
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def reproducible(seed: int) -> Iterator[None]:
    """Make random numbers, unique ids, in-process addresses and hashes of tasks repeat."""
    with _seeded(seed), _own_addresses(), _own_hashes():
        yield


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    state, uuid1, uuid4 = random.getstate(), uuid.uuid1, uuid.uuid4
    random.seed(seed)
    source = random.Random(seed)

    def seeded(*args: Any, **kwargs: Any) -> uuid.UUID:
        return uuid.UUID(int=source.getrandbits(128), version=4)

    uuid.uuid1 = uuid.uuid4 = seeded  # type: ignore[assignment]
    try:
        yield
    finally:
        random.setstate(state)
        uuid.uuid1, uuid.uuid4 = uuid1, uuid4


class _Process:
    """Stand-in for `os` in `distributed.comm.inproc`: the process id is the same in every run."""

    @staticmethod
    def getpid() -> int:
        return 1


@contextlib.contextmanager
def _own_addresses() -> Iterator[None]:
    """Let in-process addresses count from one."""
    from distributed.comm import inproc
    from distributed.comm.registry import backends

    manager = inproc.Manager()
    manager._ip = "127.0.0.1"
    backend: Any = backends["inproc"]
    before = inproc.os, inproc.global_manager, backend.manager
    inproc.os, inproc.global_manager, backend.manager = _Process, manager, manager
    try:
        yield
    finally:
        inproc.os, inproc.global_manager, backend.manager = before


@contextlib.contextmanager
def _own_hashes() -> Iterator[None]:
    """Hash tasks of workers by key instead of address, since Dask iterates over sets of them."""
    from distributed.worker_state_machine import TaskState

    before = TaskState.__hash__
    TaskState.__hash__ = lambda task: hash(task.key)  # type: ignore[method-assign]
    try:
        yield
    finally:
        TaskState.__hash__ = before  # type: ignore[method-assign]
