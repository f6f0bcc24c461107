"""Workers that speak Dask's protocol without computing, for benchmarks of the scheduler.

A real scheduler registers them and sends them tasks. Each task "runs" for its duration on the
clock, and is then reported as finished. Hundreds of them fit in one process and cost it little.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from time import thread_time, time
from typing import Any

from distributed import Scheduler
from distributed.comm import Comm
from distributed.comm.core import CommClosedError

#: Bytes of each result, large enough that the scheduler avoids moving it.
RESULT_BYTES = 10_000_000


class ProtocolWorkers:
    """Protocol workers of one scheduler. `seconds_of` gives the duration of a task by its key.

    `finished` counts the tasks reported as finished. `seconds` are CPU seconds that the scheduler
    spent handling these reports, without work that it put off to later steps of the event loop.
    """

    def __init__(self, scheduler: Scheduler, seconds_of: Callable[[Any], float]) -> None:
        self.scheduler = scheduler
        self.seconds_of = seconds_of
        self.finished = 0
        self.seconds = 0.0
        self._count = 0
        self._free: dict[str, int] = {}
        self._waiting: dict[str, list[tuple[Any, ...]]] = {}
        self._ends: list[tuple[float, float, str, Any, int]] = []
        self._tasks: set[asyncio.Task[Any]] = set()

    async def add(self, threads: int) -> None:
        """Add a worker with the given number of threads."""
        self._count += 1
        # From the range reserved for network benchmarks, where no host answers.
        address = f"tcp://198.18.{self._count >> 8}.{self._count & 255}:8786"
        self._free[address], self._waiting[address] = threads, []
        comm = _Comm(address, lambda messages: self._receive(address, messages))
        joining: Any = self.scheduler.add_worker(
            comm,
            address=address,
            status="running",
            server_id=address,
            nthreads=threads,
            name=address,
            resolve_address=False,
            now=time(),
            resources={},
            memory_limit=2**36,
            metrics=_METRICS,
            services={},
            local_directory="",
            versions={},
            nanny="",
            extra={},
            stimulus_id=f"add-{address}",
        )
        joining = asyncio.create_task(joining)
        self._tasks.add(joining)
        joining.add_done_callback(lambda task: comm.joined.set())
        await comm.joined.wait()
        if joining.done():
            joining.result()

    def _receive(self, address: str, messages: list[dict[str, Any]]) -> None:
        for message in messages:
            if message["op"] == "compute-task":
                entry = (message["priority"], message["key"], message["run_id"])
                heapq.heappush(self._waiting[address], entry)
        self._start(address)

    def _start(self, address: str) -> None:
        """Start waiting tasks on free threads, in order of priority."""
        waiting = self._waiting[address]
        while waiting and self._free[address]:
            _, key, run_id = heapq.heappop(waiting)
            self._free[address] -= 1
            now = time()
            heapq.heappush(self._ends, (now + self.seconds_of(key), now, address, key, run_id))

    def running(self) -> int:
        """Return the number of running tasks."""
        return len(self._ends)

    def finish_next(self) -> None:
        """Report the running task that ends first as finished."""
        end, start, address, key, run_id = heapq.heappop(self._ends)
        self._free[address] += 1
        self.finished += 1
        begin = thread_time()
        self.scheduler.handle_task_finished(
            key=key,
            worker=address,
            stimulus_id=f"finished-{self.finished}",
            run_id=run_id,
            metadata={},
            nbytes=RESULT_BYTES,
            type=b"",
            typename="int",
            thread=1,
            startstops=[{"action": "compute", "start": start, "stop": end}],
        )
        self.seconds += thread_time() - begin
        self._start(address)

    async def run(self) -> None:
        """Report tasks as they end, one per step of the event loop, until cancelled."""
        while True:
            while self._ends and self._ends[0][0] <= time():
                self.finish_next()
                await asyncio.sleep(0)
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        """Drop all workers without notifying the scheduler."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


_METRICS: dict[str, Any] = {
    "cpu": 0,
    "memory": 2**27,
    "time": 0,
    "bandwidth": {"total": 100_000_000, "workers": {}, "types": {}},
    "host_net_io": {"read_bps": 0, "write_bps": 0},
    "managed_bytes": 0,
    "spilled_bytes": {"memory": 0, "disk": 0},
    "transfer": {"incoming_bytes": 0, "outgoing_bytes_total": 0},
    "event_loop_interval": 0.02,
    "task_counts": {},
    "digests_total_since_heartbeat": {},
}


class _Comm(Comm):
    """The scheduler's connection to one protocol worker, which never writes to it."""

    def __init__(self, address: str, receive: Callable[[list[dict[str, Any]]], None]) -> None:
        super().__init__(deserialize=False)
        self.joined = asyncio.Event()
        self._address, self._receive = address, receive
        self._closed = asyncio.Event()

    async def read(self, deserializers: Any = None) -> Any:
        await self._closed.wait()
        raise CommClosedError("closed")

    async def write(self, msg: Any, serializers: Any = None, on_error: Any = None) -> int:
        if isinstance(msg, dict):  # the answer to the registration
            self.joined.set()
        else:
            self._receive(msg)
        return 1

    def abort(self) -> None:
        self._closed.set()

    async def close(self) -> None:
        self._closed.set()

    def closed(self) -> bool:
        return self._closed.is_set()

    @property
    def local_address(self) -> str:
        return "tcp://198.19.0.0:8786"

    @property
    def peer_address(self) -> str:
        return self._address


class Steps:
    """Context manager that times each step of the event loop, in CPU time of this thread.

    `longest` are the seconds of the longest step, whether Dask's or the plugin's, and `what` is its
    callback. `ours` are the seconds of all callbacks that `dask_slaq` put on the loop.
    """

    def __init__(self) -> None:
        self.longest = self.ours = 0.0
        self.what = ""

    def __enter__(self) -> Steps:
        self._run = run = asyncio.Handle._run

        def timed(handle: asyncio.Handle) -> None:
            callback = handle._callback
            begin = thread_time()
            run(handle)
            seconds = thread_time() - begin
            if seconds > self.longest:
                self.longest, self.what = seconds, repr(callback)
            if (getattr(callback, "__module__", None) or "").startswith("dask_slaq."):
                self.ours += seconds

        asyncio.Handle._run = timed  # type: ignore[method-assign]
        return self

    def __exit__(self, *exc: object) -> None:
        asyncio.Handle._run = self._run  # type: ignore[method-assign]
