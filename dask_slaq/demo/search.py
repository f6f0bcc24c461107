"""Many models, one task each: plain ``client.map`` against the same in a search."""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from time import sleep
from typing import Any

from distributed import Client, Future
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.demo import digits, local, report
from dask_slaq.demo.live import View
from dask_slaq.demo.local import Options, Run, Training

SHOWN = {"best_s": "best model ready", "top5_s": "best five ready", "all_s": "all models ready"}


def search(client: Client, options: Options) -> tuple[Any, ...]:
    """Train a grid of models twice on the cluster of `client`, by the `options`.

    Returns runs, figures, comparison, verdict and page.
    """
    models = digits.grid(options.count, options.seed)
    print("Measuring how long a step takes ...", flush=True)
    copies = options.copies(local.on_each_worker(client, digits.seconds_per_copy, models))
    local.on_each_worker(client, digits.noisy, copies)
    runs = [_run(client, "plain", models, options.steps, copies)]
    client.register_plugin(slaq.SlaqPlugin())
    runs.append(_run(client, "search", models, options.steps, copies))
    ways = {run.way: measure(run) for run in runs}
    rows, said = local.compare(ways, SHOWN), verdict(ways)
    about = (
        f"{options.count} models (scikit-learn's networks and linear models on its digits, with "
        f"learning rates over four decades) train {options.steps} steps each on two one-thread "
        "worker processes, by plain client.map and in a search, where models wait in their "
        f"reports while others promise more (seed {options.seed}). Losses are held-out log losses."
    )
    page = report.page(about, runs, rows, said, ranked=True)
    return runs, {"ways": ways, "seed": options.seed, "copies": copies}, rows, said, page


def _run(client: Client, way: str, models: list[digits.Model], steps: int, copies: int) -> Run:
    trainings = {f"{way} {model.name}": Training(model.name) for model in models}

    def stepped(event: tuple[float, Any]) -> None:
        key, at, loss = event[1]
        trainings[key].curve.append((at, loss))

    def ended(future: Future) -> None:
        trainings[future.key].done = time()

    client.subscribe_topic(way, stepped)
    searching = way == "search"
    block: Any = slaq.search("demo", steps=steps, client=client) if searching else nullcontext()
    with View() as view, block as found:
        run = Run(way, list(trainings.values()))
        work = {"topic": way, "steps": steps, "copies": copies}
        futures = client.map(digits.train, models, key=list(trainings), **work)
        for future in futures:
            future.add_done_callback(ended)
        while not all(training.done for training in run.trainings):
            trials = found.trials() if searching else ()
            view.update(
                run, [t["key"].partition(" ")[2] for t in trials if t["state"] == "waiting"]
            )
            sleep(local.LOOK)
        view.update(run, last=True)
    client.unsubscribe_topic(way)
    for training, future in zip(run.trainings, futures, strict=True):
        if future.status == "finished":
            training.curve, training.spans = future.result()
        else:
            training.error = "".join(traceback.format_exception(future.exception()))
    return run


def measure(run: Run) -> dict[str, Any]:
    """Return when the best model, the best five and all were ready, in seconds from the start."""
    good = sorted((t for t in run.trainings if not t.error), key=lambda t: t.loss)
    ends = [t.done - run.start for t in good if t.done]
    return {
        "best_s": max(ends[:1], default=None),
        "top5_s": max(ends[:5], default=None),
        "all_s": max(ends, default=None),
        "models": {t.name: t.loss for t in good},
    }


def verdict(ways: dict[str, dict[str, Any]]) -> str:
    """Return what was gained and what it cost."""
    five, every = local.ratio(ways, "top5_s"), local.ratio(ways, "all_s")
    if five is None or every is None:
        return "Too many models failed for a comparison."
    plain, searched = (way["models"] for way in ways.values())
    said = f"The search had the best five models ready after {five:.2f} of the time"
    if five > local.GAINED:
        places = sorted(name.partition(" ")[0] for name in list(plain)[:5])
        said = (
            f"Nothing was gained: plain Dask trains the models in order, the best five are numbers "
            f"{', '.join(places)}, and the search took {five:.2f} of the time for them"
        )
    same = "Every model ended" if plain == searched else "Not every model ended"
    return f"{said}, and {every:.2f} for all. {same} with the same loss both ways."
