"""Outcome of a round: results, log messages of the plugin, and the replay of its event log."""

from __future__ import annotations

import contextlib
import logging
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from dask_slaq.lab.simulation.replay import replay_log as replay


class Deliberate(Exception):
    """Error that a fault makes a task or a part of the plugin raise."""


@dataclass
class Outcome:
    """Outcome of a round: the results of each participant, or the error that ended its work.

    Participants whose client was closed are excused. `left_over` is state that should not exist
    after the round, `broken` are invariants, and `notes` hints for finding the cause. The last
    participant ended at `ended`, and the last fault was over at `quiet`, in virtual seconds.
    """

    results: dict[str, Any] = field(default_factory=dict)
    excused: set[str] = field(default_factory=set)
    faults: Counter[str] = field(default_factory=Counter)
    left_over: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: float = 0.0
    quiet: float = 0.0


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep log messages that the faults cause off the terminal."""
    loggers = list(map(logging.getLogger, ("dask_slaq", "distributed", "tornado", "asyncio")))
    before = [(logger, logger.propagate, logger.handlers[:]) for logger in loggers]
    children = [
        (logger, logger.handlers[:], logger.propagate)
        for name in list(logging.root.manager.loggerDict)
        if name.startswith(("distributed.", "tornado.")) and (logger := logging.getLogger(name))
    ]
    try:
        for logger in loggers:
            logger.propagate, logger.handlers[:] = False, [logging.NullHandler()]
        for logger, _, _ in children:
            logger.handlers[:], logger.propagate = [], True
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Scheduler already contains a plugin")
            yield
    finally:
        for logger, propagate, handlers in before:
            logger.propagate, logger.handlers[:] = propagate, handlers
        for logger, handlers, propagate in children:
            logger.handlers[:], logger.propagate = handlers, propagate


@contextlib.contextmanager
def watch(outcome: Outcome) -> Iterator[None]:
    """Record the log messages of the plugin in `outcome`."""
    handler, logger = _Watch(outcome), logging.getLogger("dask_slaq")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


class _Watch(logging.Handler):
    """Log handler for which an error that no fault caused is a broken invariant."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(logging.WARNING)
        self.outcome = outcome

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        text = record.getMessage()
        if record.levelno >= logging.ERROR and not isinstance(error, Deliberate):
            self.outcome.broken.append(text[:300])
            if error is not None:
                self.outcome.notes.append("".join(traceback.format_exception(error)))
        elif "although slots were free" in text or "failed in Dask" in text:
            self.outcome.notes.append(text[:300])


def replay_log(log: str, outcome: Outcome) -> None:
    """Replay the event log at a path, and record any difference as a broken invariant."""
    try:
        again = replay(log)
    except Exception as error:
        outcome.broken.append(f"the log cannot be read: {error}"[:300])
        return
    if again["difference"] is not None:
        outcome.broken.append(f"the log does not replay: {again['said']}")
