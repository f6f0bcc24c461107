"""Latency of messages: on a virtual clock they would otherwise take no time.

Every message between the scheduler and its workers and clients (`BatchedSend`) arrives a given time
later, in order. What waits for a round trip in a real cluster then waits for it here as well.
Transfers of data between workers take their time by size (`Cluster`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections import deque
from collections.abc import Iterator
from typing import Any

import click
from dask.utils import parse_timedelta
from distributed.batched import BatchedSend

_latency = 0.0


def set_latency(seconds: float) -> None:
    """Set the latency of the virtual runs that follow in this process, in seconds per message."""
    global _latency
    _latency = seconds


def current() -> float:
    """Return the latency of virtual runs in this process, in seconds."""
    return _latency


def parse(context: click.Context, parameter: click.Parameter, value: str) -> list[float]:
    """Return latencies in seconds, from times with units, comma-separated."""
    try:
        found = [float(parse_timedelta(each.strip() or "x", "s")) for each in value.split(",")]
    except (ValueError, KeyError) as error:
        raise click.BadParameter(f"{value!r} is not a time such as 4ms") from error
    if min(found) < 0:
        raise click.BadParameter("a latency is not negative")
    return found


def _one(context: click.Context, parameter: click.Parameter, value: str) -> None:
    set_latency(parse(context, parameter, value)[0])


#: Option that sets the latency of all virtual runs of a benchmark, also of those in its pool.
latency_option = click.option(
    "--latency",
    default="0",
    show_default=True,
    callback=_one,
    expose_value=False,
    help="Time that each message takes on the virtual clock, such as 4ms.",
)


@contextlib.contextmanager
def messages_take() -> Iterator[None]:
    """Delay all messages in this block by the latency that is set."""
    seconds = _latency
    if not seconds:
        yield
        return
    send, waiting = BatchedSend.send, "_messages_on_their_way"

    def later(self: Any, *messages: Any) -> None:
        # Timers of one moment fire in any order: each takes the oldest message of its stream.
        on_their_way = vars(self).setdefault(waiting, deque())
        on_their_way.append(messages)
        asyncio.get_running_loop().call_later(seconds, arrive, self, on_their_way)

    def arrive(stream: Any, on_their_way: deque[Any]) -> None:
        with contextlib.suppress(Exception):  # closed meanwhile: so it is lost, as in a network
            send(stream, *on_their_way.popleft())

    BatchedSend.send = functools.wraps(send)(later)  # type: ignore[method-assign]
    try:
        yield
    finally:
        BatchedSend.send = send  # type: ignore[method-assign]
