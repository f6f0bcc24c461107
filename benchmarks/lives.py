"""``python -m benchmarks.lives``: models without states on workers that live shortly.

Each of two workers of one thread closes after some seconds, and another one takes its place. Run it
with ``--slaq 0`` for plain Dask, and with ``--slaq 1`` for a search.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import click
from distributed import Client, Scheduler, Worker, as_completed

import dask_slaq as slaq
from benchmarks.common.results import give, json_option

made: list[int] = []  # models of the steps that were made


def train(model: int, steps: int, seconds: float, reports: bool) -> None:
    """Sleep in each step, and report a loss."""
    for step in range(steps):
        time.sleep(seconds)
        made.append(model)
        if reports:
            slaq.report(model * 37 % 80 / 80 + 1 / (step + 1))


async def run(searches: bool, models: int, steps: int, seconds: float, life: float) -> Any:
    """Train all models. Returns the steps that were made, and the seconds until all had ended."""

    async def live() -> None:
        while True:
            worker = await Worker(scheduler.address, nthreads=1, dashboard_address=":0")
            try:
                await asyncio.sleep(life)
            finally:
                await worker.close(executor_wait=False, nanny=False)

    async with AsyncExitStack() as stack:
        scheduler = await stack.enter_async_context(Scheduler(port=0, dashboard=False))
        client = await stack.enter_async_context(Client(scheduler.address, asynchronous=True))
        if searches:
            await client.register_plugin(slaq.SlaqPlugin())
            await stack.enter_async_context(slaq.search("lives", steps=steps, client=client))
        begin, slots = time.monotonic(), [asyncio.ensure_future(live()) for _ in range(2)]
        about = {"steps": steps, "seconds": seconds, "reports": searches, "pure": False}
        async for future in as_completed(client.map(train, range(models), **about)):
            await future
        for slot in slots:
            slot.cancel()
        await asyncio.gather(*slots, return_exceptions=True)
        return {"steps": len(made), "all_s": time.monotonic() - begin}


@click.command()
@click.option("--slaq", "searches", default=1, show_default=True, type=click.IntRange(0, 1))
@click.option("--models", default=80, show_default=True, type=click.IntRange(1))
@click.option("--steps", default=12, show_default=True, type=click.IntRange(1), help="Per model.")
@click.option("--step-seconds", default=0.05, show_default=True, type=click.FloatRange(0))
@click.option("--life", default=12.0, show_default=True, help="Seconds that a worker lives.")
@click.option("--quick", is_flag=True, help="Steps of 10 ms, and a fifth of the life.")
@json_option
def main(
    searches: int, models: int, steps: int, step_seconds: float, life: float, quick: bool,
    output: str | None,
) -> None:  # fmt: skip
    """Count the steps of models whose workers live shortly."""
    scale = 0.2 if quick else 1.0
    found = asyncio.run(run(bool(searches), models, steps, scale * step_seconds, scale * life))
    give(found, output, f"{found['steps']} steps of {models * steps}, {found['all_s']:.1f} s")


if __name__ == "__main__":
    from benchmarks import lives  # whose `made` the tasks know

    lives.main()
