"""Many models, one task each: plain ``client.map`` against the same in a search."""

from __future__ import annotations

import traceback
from contextlib import nullcontext
from functools import cache
from typing import Any

import numpy as np
from distributed import Client, Future, get_worker
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.lab.demo import local
from dask_slaq.lab.demo.local import DemoRun, DemoTraining, Figures, Options

#: Digits to train on; the other 397 are held out.
N_TRAINED = 1400
#: Standard deviation of the noise of their copies; pixels are between 0 and 1.
NOISE_DEVIATION = 0.15
SHOWN = {
    "best_s": "best model ready",
    "top5_s": "best five ready",
    "all_s": "all models ready",
}


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Return scikit-learn's digits, shuffled: (1797, 64) pixels from 0 to 1, (1797,) classes."""
    from sklearn.datasets import load_digits

    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order] / 16, y[order]


@cache
def noisy(copies: int) -> tuple[np.ndarray, np.ndarray]:
    """Return `copies` of the digits to train on, each with noise of its own."""
    X, y = (np.concatenate([a[:N_TRAINED]] * copies) for a in digits())
    return X + np.random.default_rng(1).normal(0, NOISE_DEVIATION, X.shape), y


def grid(count: int, seed: int, copies: int) -> dict[str, Any]:
    """Draw `count` unfitted models by a `seed`, by name: networks and linear models.

    Batches grow with the number of `copies`, so that curves are much the same.
    """
    from sklearn.linear_model import SGDClassifier
    from sklearn.neural_network import MLPClassifier

    rng, models = np.random.default_rng(seed), {}
    for number in range(1, count + 1):
        rate, width = float(10 ** rng.uniform(-5.5, -1.5)), int(2 ** rng.uniform(4, 7.5))
        given: dict[str, Any] = {"random_state": int(rng.integers(2**31))}
        if rng.random() < 0.25:
            given |= {"loss": "log_loss", "learning_rate": "constant", "eta0": rate / copies}
            models[f"{number:02} linear, rate {rate:.0e}"] = SGDClassifier(**given)
        else:
            given |= {"learning_rate_init": rate, "batch_size": 50 * copies}
            models[f"{number:02} network {width}, rate {rate:.0e}"] = MLPClassifier(width, **given)
    return models


def one_step(model: Any, copies: int) -> float:
    """Train a `model` on all rows of all `copies` once. Returns its held-out log loss."""
    model.partial_fit(*noisy(copies), classes=np.arange(10))
    X, y = digits()
    likely = model.predict_proba(X[N_TRAINED:])[np.arange(len(y) - N_TRAINED), y[N_TRAINED:]]
    return float(-np.log(np.clip(likely, 1e-6, 1)).mean())


def train(model: Any, steps: int, copies: int) -> tuple[list[Any], list[Any]]:
    """Train a `model` for `steps` on `copies` of the digits.

    Returns curve and spans of a `DemoTraining`.
    """
    curve, spans, address = [], [], get_worker().address
    for _ in range(steps):
        start = time()
        loss, stop = one_step(model, copies), time()
        curve.append((stop, loss))
        spans.append((address, start, stop))
        slaq.report(loss)
    return curve, spans


def seconds_per_copy(models: dict[str, Any], copies: int) -> float:
    """Return the mean time per copy that a step of `models` takes on a number of `copies`."""
    for model in models.values():  # which imports and allocates
        one_step(model, copies)
    start = time()
    for model in models.values():
        one_step(model, copies)
    return (time() - start) / (copies * len(models))


def search(client: Client, options: Options) -> local.Result:
    """Train a grid of models twice on the cluster of `client`, by the `options`."""
    print("Measuring how long a step takes ...", flush=True)
    few = grid(options.count, options.seed, 4)
    copies = options.copies(local.on_each_worker(client, seconds_per_copy, few, 4))
    local.on_each_worker(client, noisy, copies)
    runs = []
    plain, ours = ("plain", "plain client.map"), ("search", "a search")
    for way in local.announced((plain, ours, ours, plain)):  # drift cancels
        plugin = slaq.SlaqPlugin()  # a new one remembers no run
        if way == "search":
            client.register_plugin(plugin)
        runs.append(_run(client, way, options, copies))
        if way == "search":
            client.unregister_scheduler_plugin(plugin.name)
    ways = local.figures_of(runs, measure)
    about = (
        f"{options.count} models (scikit-learn's networks and linear models on its digits, with "
        f"learning rates over four decades) train {options.steps} steps each on two one-thread "
        "worker processes: by plain client.map, twice in a search, where models wait in their "
        f"reports while others promise more, and by client.map again (seed {options.seed}). "
        "Losses are held-out log losses."
    )
    figures = {"ways": ways, "seed": options.seed, "copies": copies}
    said = local.judge(verdict(ways), ways, "top5_s")
    return local.Result(about, runs, figures, SHOWN, said, ranked=True)


def _run(client: Client, way: str, options: Options, copies: int) -> DemoRun:
    models = grid(options.count, options.seed, copies)
    block: Any = nullcontext()
    if way == "search":
        block = slaq.search("demo", steps=options.steps, client=client)
    with block:
        run = DemoRun(way, list(map(DemoTraining, models)))
        work: dict[str, Any] = {"steps": options.steps, "copies": copies, "pure": False}
        futures = client.map(train, list(models.values()), **work)
        of_key = {f.key: one for f, one in zip(futures, run.trainings, strict=True)}

        def ended(future: Future[Any]) -> None:
            of_key[future.key].done = time()

        for future in futures:
            future.add_done_callback(ended)
        local.watch(run)
    for training, future in zip(run.trainings, futures, strict=True):
        if future.status == "finished":
            training.curve, training.spans = future.result()
        else:
            training.error = "".join(traceback.format_exception(future.exception()))
    return run


def measure(run: DemoRun) -> dict[str, Any]:
    """Return when the best model, the best five and all were ready, in seconds from the start."""
    good = sorted((t for t in run.trainings if not t.error), key=lambda t: t.loss)
    ends = [t.done - run.start for t in good if t.done]
    return {
        "best_s": max(ends[:1], default=None),
        "top5_s": max(ends[:5], default=None),
        "all_s": max(ends, default=None),
        "models": {t.name: t.loss for t in good},
    }


def verdict(ways: Figures, gained: float = 0.95) -> str:
    """Return what was gained and what it cost; nothing if it took more than the part `gained`."""
    five, every = local.ratio(ways, "top5_s"), local.ratio(ways, "all_s")
    if five is None or every is None:
        return "Too many models failed for a comparison."
    text = f"The search had the best five models ready after {five:.2f} of the time"
    if five > gained:
        text = f"Nothing was gained: plain Dask trained the best five early, by chance. {text}"
    ended = [run["models"] for way in ways.values() for run in way["runs"]]
    same = "Every" if all(each == ended[0] for each in ended) else "Not every"
    return f"{text}, and {every:.2f} for all. {same} model ended with the same loss both ways."
