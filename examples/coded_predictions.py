"""Coded predictions: late answers are reconstructed from others, sooner than plain Dask has them.

Run it with ``python examples/coded_predictions.py``. Queries arrive one by one, each is a task,
and one task in thirty takes twenty times as long. Every two queries are followed by a parity
query, their sum, to a parity model that answers with the sum of both answers. So if one answer is
late, it is what the parity model answers minus the other answer: exactly for a linear model,
approximately for a network (ParM, Kosaian et al., SOSP 2019).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter, sleep
from typing import NamedTuple

import numpy as np
from distributed import Client, Future, LocalCluster
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor

#: Queries of a group; seconds of an answer and of a late one, and the part of them that is late.
GROUP, SECONDS, LATE_SECONDS, LATE = 2, 0.03, 0.6, 0.03
WORKERS, QUERIES, QUERIES_PER_SECOND = 8, 200, 50
SHAPE = {
    "n_workers": WORKERS,
    "threads_per_worker": 1,
    "processes": False,
    "dashboard_address": None,
}

Array = np.ndarray
Model = Callable[[Array], Array]


class Answers(NamedTuple):
    """Scores (n_queries, n_classes), seconds until each was there, and which are reconstructed."""

    scores: Array
    seconds: Array
    rebuilt: Array


def linear_models(X: Array, y: Array) -> tuple[Model, Model]:
    """Return a linear model, and one that answers the sum of queries with the sum of answers."""
    fitted = LogisticRegression(max_iter=200).fit(X, y)
    coef, intercept = fitted.coef_.T, fitted.intercept_
    return lambda x: x @ coef + intercept, lambda x: x @ coef + GROUP * intercept


def networks(X: Array, y: Array) -> tuple[Model, Model]:
    """Return a network, and another that has learned to answer sums of queries in the same way."""
    network = MLPClassifier(64, tol=1e-3, random_state=0).fit(X, y)
    groups = np.random.default_rng(0).integers(len(X), size=(12_000, GROUP))
    sums = network.predict_proba(X)[groups].sum(axis=1)
    parity = MLPRegressor(hidden_layer_sizes=200, tol=1e-3, random_state=0)
    parity.fit(X[groups].sum(axis=1), sums)
    return network.predict_proba, parity.predict


def predict(model: Model, x: Array, seconds: float) -> Array:
    """Answer one query on a worker."""
    sleep(seconds)
    return model(x[None])[0]


async def serve(client: Client, models: list[Future], X: Array, coded: bool) -> Answers:
    """Answer the queries (n_queries, n_features) as they arrive, with parity queries or without."""
    model, parity_model = models
    late = np.random.default_rng(1).random((2, len(X))) < LATE
    seconds = np.where(late, LATE_SECONDS, SECONDS)
    own: list[asyncio.Task] = []
    parities = [asyncio.get_running_loop().create_future() for _ in range(0, len(X), GROUP)]
    scores, took = [np.empty(0)] * len(X), np.empty(len(X))
    rebuilt = np.zeros(len(X), dtype=bool)

    async def ask(*query: object) -> Array:
        return await client.submit(predict, *query, pure=False)

    async def reconstruct(i: int) -> Array:
        group = i // GROUP
        parity = await (await parities[group])
        others = own[group * GROUP : (group + 1) * GROUP]
        return parity - sum([await other for other in others if other is not own[i]])

    async def answer(i: int, arrived: float) -> None:
        ways = [own[i], asyncio.ensure_future(reconstruct(i))] if coded else [own[i]]
        done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        took[i], rebuilt[i] = perf_counter() - arrived, own[i] not in done
        scores[i] = next(iter(done)).result()
        await asyncio.wait(ways)  # the late one, too

    answers, start = [], perf_counter()
    for i, x in enumerate(X):
        await asyncio.sleep(max(start + i / QUERIES_PER_SECOND - perf_counter(), 0.0))
        own.append(asyncio.ensure_future(ask(model, x, seconds[0, i])))
        answers.append(asyncio.ensure_future(answer(i, perf_counter())))
        group, place = divmod(i + 1, GROUP)
        if coded and place == 0:
            total = X[i + 1 - GROUP : i + 1].sum(axis=0)
            query = asyncio.ensure_future(ask(parity_model, total, seconds[1, i]))
            parities[group - 1].set_result(query)
    await asyncio.gather(*answers)
    return Answers(np.array(scores), took, rebuilt)


async def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, X_new, y, y_new = train_test_split(X / 16, y, random_state=0)
    queries = np.random.default_rng(2).integers(len(X_new), size=QUERIES)
    async with (
        LocalCluster(asynchronous=True, **SHAPE) as cluster,
        Client(cluster, asynchronous=True) as client,
    ):
        for name, models in (("linear", linear_models(X, y)), ("network", networks(X, y))):
            there = await client.scatter(list(models), broadcast=True)
            plain = await serve(client, there, X_new[queries], coded=False)
            coded = await serve(client, there, X_new[queries], coded=True)
            for way, found in (("plain Dask", plain), ("coded", coded)):
                median, tail = np.quantile(found.seconds, [0.5, 0.99]) * 1000
                print(f"{name}, {way}: median {median:.0f} ms, p99 {tail:.0f} ms")
            rows, true = coded.rebuilt, y_new[queries]
            right = [np.mean(a.scores[rows].argmax(1) == true[rows]) for a in (plain, coded)]
            error = np.abs(coded.scores - plain.scores)[rows].max()
            print(
                f"{name}: {rows.sum()} of {len(rows)} reconstructed, accuracy {right[1]:.3f} "
                f"instead of {right[0]:.3f}, largest error of a score {error:.1e}"
            )


if __name__ == "__main__":
    asyncio.run(main())
