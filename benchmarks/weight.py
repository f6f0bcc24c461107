"""Weight benchmark: lines of this package that are loaded in the process of a scheduler.

It is measured as it starts, with jobs, with a search, and in a second process with an event log and
a memory whose pages are looked at. The source tells the circles of its modules, and how often it
touches what is private to Dask.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import click

from benchmarks.common.results import give, json_option
from benchmarks.common.structure import Points, circles, touch_points

__all__ = ["STAGES", "main", "measure"]

#: What happens, one after the other; what is loaded is counted after each.
STAGES = ("started", "jobs", "search", "everything")
PAGES = ("slaq", "slaq-search", "individual-slaq-loss", "json/slaq.json", "metrics")


def measure() -> list[dict[str, Any]]:
    """Return a row per part of the package: its lines, and those loaded at each stage."""
    import dask_slaq

    folder = Path(dask_slaq.__file__).parent
    loaded: dict[str, set[str]] = {}
    with _scheduler([]) as client:
        loaded["started"] = client.run_on_scheduler(_loaded)
        _train(client)
        loaded["jobs"] = client.run_on_scheduler(_loaded)
        _search(client)
        loaded["search"] = client.run_on_scheduler(_loaded)
    with tempfile.TemporaryDirectory() as kept:
        options = ["--memory", f"{kept}/memory", "--log", f"{kept}/log"]
        with _scheduler(options) as client:
            _train(client)
            _search(client)
            _look(client)
            loaded["everything"] = client.run_on_scheduler(_loaded) | loaded["search"]
    found = {stage: Counter[str]() for stage in ("package", *STAGES)}
    for path in folder.rglob("*.py"):
        part = path.relative_to(folder).parts[0].removesuffix(".py").strip("_")
        lines = len(path.read_text().splitlines())
        found["package"][part] += lines
        for stage in STAGES:
            found[stage][part] += lines if str(path) in loaded[stage] else 0
    parts = sorted(found["package"], key=lambda part: -found["package"][part])
    rows: list[dict[str, Any]] = [
        {"part": part, **{stage: counts[part] for stage, counts in found.items()}} for part in parts
    ]
    return [*rows, {"part": "all", **{stage: counts.total() for stage, counts in found.items()}}]


@contextmanager
def _scheduler(options: list[str]) -> Iterator[Any]:
    """Run a scheduler and a worker in processes of their own; yield a client."""
    from distributed import Client

    with tempfile.TemporaryDirectory() as folder:
        file = f"{folder}/scheduler.json"
        dask = [sys.executable, "-m", "dask"]
        at, slaq = ["--scheduler-file", file], ["--preload", "dask_slaq", *options]
        commands = (
            ["scheduler", *at, "--port", "0", "--dashboard-address", ":0", *slaq],
            ["worker", *at, "--no-nanny", "--no-dashboard", "--nthreads", "2"],
        )
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        running = [subprocess.Popen([*dask, *command], **quiet) for command in commands]
        try:
            with Client(scheduler_file=file, timeout=60, set_as_default=False) as client:
                client.wait_for_workers(1, timeout=60)
                yield client
                client.shutdown()
        finally:
            for process in running:
                process.kill()
                process.wait()


def _loaded() -> set[str]:
    """Return the files of this package that the process has loaded."""
    import sys

    ours = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "dask_slaq"]
    return {m.__file__ for m in ours if getattr(m, "__file__", None)}


def _train(client: Any) -> None:
    """Train in a job, beside another."""
    import dask_slaq as slaq

    with slaq.job("first", client=client), slaq.job("second", client=client) as job:
        for step in range(5):
            client.submit(abs, step, pure=False).result()
            job.report(1 / (step + 1))
        slaq.status(client)


def _fit(first: float) -> float:
    import dask_slaq as slaq

    for step in range(5):
        slaq.report(first / (step + 1))
    return first


def _search(client: Any) -> None:
    """Train four models in a search."""
    import dask_slaq as slaq

    with slaq.search("search", client=client, steps=5) as search:
        client.gather(client.map(_fit, range(1, 5), pure=False))
        search.trials()


def _look(client: Any) -> None:
    """Ask for all that people look at."""
    import dask_slaq as slaq

    with slaq.job("seen", client=client):
        client.submit(abs, 1, pure=False).result()
        slaq.explain("seen", client=client)
        slaq.usage(client=client)
        root = client.dashboard_link.removesuffix("/status")
        for page in PAGES:
            with suppress(HTTPError):  # a scheduler may have no dashboard, or no metrics
                urlopen(f"{root}/{page}").read()


@click.command()
@json_option
def main(output: str | None) -> None:
    """Count the lines of this package that the process of a scheduler has loaded.

    Circles are modules that import each other, be it for types alone. Touch points are what is
    overridden, surrounded or read of what is private to Dask; docs/touch-points.md tells of each.
    """
    rows = measure()
    table = [f"{'part':<12}" + "".join(f"{key:>12}" for key in rows[0] if key != "part")]
    for row in rows:
        counts = [value for key, value in row.items() if key != "part"]
        table.append(f"{row['part']:<12}" + "".join(f"{count:>12,}" for count in counts))
    table += ["", *_structure()]
    give(rows, output, "\n".join(table))


def _structure() -> list[str]:
    """Return lines on the circles of modules, and on touch points with Dask."""
    import dask_slaq

    folder = Path(dask_slaq.__file__).parent
    found, points = circles(folder), touch_points(folder)
    scheduler = [circle for circle in found if _is_of_scheduler(circle)]
    sizes = ", ".join(str(len(circle)) for circle in found) or "none"
    lines = [
        f"circles of modules, by size: {sizes}",
        f"of these in the scheduler: {', '.join(str(len(each)) for each in scheduler) or 'none'}",
        *(f"  {' '.join(name.removeprefix('dask_slaq.') for name in each)}" for each in scheduler),
        f"private touch points: {_in_words(points)}; of these in the scheduler:"
        f" {_in_words([each for each in points if each.where == 'scheduler'])}",
    ]
    for each in points:
        later = f" (at first use: {', '.join(each.at_first_use)})" if each.at_first_use else ""
        names = ", ".join(each.names) or "none"
        lines.append(f"  {each.where}: {len(each.names)} {each.how}: {names}{later}")
    return lines


def _in_words(points: Collection[Points]) -> str:
    """Return how many places are touched, always and with all that can be used."""
    every = sum(len(each.names) for each in points)
    later = sum(len(each.at_first_use) for each in points)
    return f"{every - later}, {every} with every feature"


def _is_of_scheduler(circle: tuple[str, ...]) -> bool:
    return all(name.startswith("dask_slaq.scheduler.") for name in circle)


if __name__ == "__main__":
    main()
