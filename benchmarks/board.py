"""Board benchmark: what open boards cost the scheduler's event loop.

Many jobs report to a real scheduler with a dashboard, whose event loop runs in a thread of its own.
The thread's CPU seconds per second are measured in turns without and with open boards. The boards
are open in another process, as browsers are. The longest step is that of the event loop.
"""

from __future__ import annotations

import multiprocessing
import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import click
from distributed import Client, LocalCluster

import dask_slaq as slaq
from benchmarks.common.protocol_workers import Steps
from benchmarks.common.results import give, json_option, say


def look(port: int, boards: int, stop: Any, ready: Any) -> None:
    """Keep boards open until `stop` is set: run in a process of its own."""
    import asyncio

    from tornado.httpclient import AsyncHTTPClient, HTTPRequest
    from tornado.websocket import websocket_connect

    async def one() -> None:
        page = await AsyncHTTPClient().fetch(f"http://127.0.0.1:{port}/slaq")
        token = page.body.decode().split('"token":"')[1].split('"')[0]
        headers = {"Sec-WebSocket-Protocol": f"bokeh, {token}"}

        url = f"ws://127.0.0.1:{port}/slaq/ws"
        socket = await websocket_connect(
            HTTPRequest(url, headers=headers), subprotocols=["bokeh", token]
        )
        await socket.read_message()  # the acknowledgement
        # A browser asks for the document, which starts its updates.
        await socket.write_message('{"msgid":"1","msgtype":"PULL-DOC-REQ"}')
        await socket.write_message("{}")
        await socket.write_message("{}")
        ready.release()
        while not stop.is_set():
            try:
                await asyncio.wait_for(socket.read_message(), 0.5)
            except TimeoutError:
                continue
        socket.close()

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(boards)))

    asyncio.run(all_of_them())


def measure(jobs: int, boards: int, seconds: float, turns: int) -> dict[str, Any]:
    """Measure the load of the event loop without and with open boards, in turns.

    Each job reports once per second. Returns, of each turn, the CPU seconds of the loop's thread
    per second, their median difference (``cost``), and the loop's longest steps.
    """
    found: dict[str, Any] = {"jobs": jobs, "boards": boards, "without": [], "with": []}
    longest: dict[str, float] = {"without": 0.0, "with": 0.0}
    with (
        LocalCluster(2, processes=False, threads_per_worker=2, dashboard_address=":0") as cluster,
        Client(cluster) as client,
        ExitStack() as stack,
    ):
        client.register_plugin(slaq.SlaqPlugin(epoch="1s"))
        opened = [stack.enter_context(slaq.job(f"job-{n}", target=0.1)) for n in range(jobs)]
        stop = threading.Event()
        reporter = threading.Thread(target=_report, args=(opened, stop), daemon=True)
        reporter.start()
        stack.callback(stop.set)
        time.sleep(min(seconds, 5.0))
        port = cluster.scheduler.http_server.port
        for turn in range(turns):
            for kind in ("without", "with"):
                with _open(port, boards if kind == "with" else 0):
                    load, step = client.sync(_load, seconds)
                found[kind].append(load)
                longest[kind] = max(longest[kind], step)
                say(f"turn {turn + 1}, {kind} boards: {load:.3f}")
    pairs = zip(found["with"], found["without"], strict=True)
    found["cost"] = statistics.median(a - b for a, b in pairs)
    found["longest_ms"] = 1e3 * longest["with"]
    found["longest_without_ms"] = 1e3 * longest["without"]
    return found


def _report(opened: list[Any], stop: threading.Event) -> None:
    step = 0
    while not stop.is_set():
        step += 1
        for n, job in enumerate(opened):
            job.report(0.05 + (1.0 + n % 7) / (step + n % 5))
        time.sleep(1.0)


async def _load(seconds: float) -> tuple[float, float]:
    """Return the load of this event loop's thread, and its longest step in seconds."""
    import asyncio

    with Steps() as steps:
        begin, cpu = time.monotonic(), time.thread_time()
        await asyncio.sleep(seconds)
        load = (time.thread_time() - cpu) / (time.monotonic() - begin)
    return load, steps.longest


@contextmanager
def _open(port: int, boards: int) -> Iterator[None]:
    """Keep boards open in another process."""
    if not boards:
        yield
        return
    context = multiprocessing.get_context("spawn")
    stop, ready = context.Event(), context.Semaphore(0)
    process = context.Process(target=look, args=(port, boards, stop, ready), daemon=True)
    process.start()
    try:
        for _ in range(boards):
            if not ready.acquire(timeout=60):
                raise RuntimeError("a board could not be opened")
        time.sleep(1.0)
        yield
    finally:
        stop.set()
        process.join(10)


@click.command()
@click.option("--jobs", default=200, show_default=True, type=click.IntRange(1))
@click.option("--boards", default=2, show_default=True, type=click.IntRange(1))
@click.option("--seconds", default=10.0, show_default=True, help="Length of one measurement.")
@click.option("--turns", default=3, show_default=True, type=click.IntRange(1))
@click.option("--quick", is_flag=True, help="Fewer jobs and seconds: under half a minute.")
@json_option
def main(
    jobs: int, boards: int, seconds: float, turns: int, quick: bool, output: str | None
) -> None:
    """Measure what open boards cost the scheduler's event loop."""
    if quick:
        jobs, seconds, turns = min(jobs, 20), 3.0, 1
    found = measure(jobs, boards, seconds, turns)
    give(
        found,
        output,
        f"{jobs} jobs, {boards} boards: {found['cost']:.1%} of the event loop's time; "
        f"longest step {found['longest_ms']:.0f} ms "
        f"({found['longest_without_ms']:.0f} ms without boards)",
    )


if __name__ == "__main__":
    main()
