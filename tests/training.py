"""How the tests of the core have a job of an engine train."""

from collections.abc import Iterable

from dask_slaq.core.engine import Engine


def train(
    engine: Engine,
    job: str,
    losses: Iterable[float],
    *,
    seconds: float = 1.0,
    at_once: int = 8,
    tasks: int = 1,
) -> None:
    """Have a job compute some tasks and report, a second after the other, and want more threads."""
    for now, loss in enumerate(losses):
        for _ in range(tasks):
            engine.observe_task(job, seconds, at_once)
        engine.report(job, loss, float(now))
    engine.observe_demand(job, at_once)
