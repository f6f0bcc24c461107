"""Reports of dask-ml's searches that train in increments, and what makes jobs of their models.

A search is a coroutine in the client's event loop. It trains its models in rounds: all get a score,
then ``additional_calls`` decides who trains on. The search reports its best score. In the block of
a job each model is a job as well, which has its own tasks and reports its own score, until the
search trains it no more; see `dask_slaq.client.parts`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from dask_slaq.adapters.blocks import Block, Parts
from dask_slaq.adapters.loops import Lookalike, Loop, Watch

logger = logging.getLogger(__name__)

# The best score of each block: Hyperband runs several searches at once, and they are one job.
_best: WeakKeyDictionary[Block, float] = WeakKeyDictionary()


class Search(Watch):
    """The loop persists dicts of collections by the number of their model, once a round, and then
    calls ``additional_calls(info)`` with the history of each model that may train on.
    """

    stands_in = ("dask",)
    needs = ("additional_calls", "params", "prefix")

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.decide = self.arguments["additional_calls"]
        self.arguments["additional_calls"] = self.additional_calls
        self.dask = Lookalike(self.library["dask"], persist=self.persist)
        self.models: Models | None = None

    def around(self, run: Callable[[], Any]) -> Any:
        return self._search(run)

    async def _search(self, run: Callable[[], Any]) -> Any:
        self.models = await self._divide()
        try:
            return await run()
        finally:
            self._of_models(lambda models: models.keep(()))

    async def _divide(self) -> Models | None:
        if self._block.divide is None:
            return None
        try:
            prefix = str(self.arguments["prefix"]).strip(", ")
            numbers = range(len(self.arguments["params"]))
            names = [f"{prefix}-{n}" if prefix else str(n) for n in numbers]
            parts = await self._block.divide(names)
            return None if parts is None else Models(parts)
        except Exception as error:
            logger.warning("the models of a search do not become jobs: %r", error)
            return None

    def persist(self, *collections: Any, **kwargs: Any) -> Any:
        self._of_models(lambda models: models.claim(collections))
        return self.library["dask"].persist(*collections, **kwargs)

    def additional_calls(self, info: Any) -> Any:
        self.safely(self._scored, info)
        self._of_models(lambda models: models.scored(info))
        calls = self.decide(info)
        self._of_models(lambda models: models.keep(n for n, more in calls.items() if more))
        return calls

    def _scored(self, info: Any) -> None:
        scores = [float(history[-1]["score"]) for history in info.values() if history]
        known = [score for score in scores if math.isfinite(score)]
        if known:
            best = _best[self._block] = max(*known, _best.get(self._block, -math.inf))
            self.report(-best)

    def _of_models(self, step: Callable[[Models], Any]) -> Any:
        """Return ``step(models)``; if it raises, the search is one job from then on.

        A search may outlive the block: of Hyperband's, when another one fails. Its jobs are over.
        """
        if self.models is None or not self._block.open:
            return None
        try:
            return step(self.models)
        except Exception as error:
            logger.warning("the models of a search are jobs no longer: %r", error)
            models, self.models = self.models, None
            with suppress(Exception):  # without a connection the scheduler ends them by itself
                models.keep(())
            return None


class Models:
    """The models of one search as jobs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._training = dict(enumerate(parts.names))
        self._reports: dict[Any, int] = {}

    def claim(self, collections: tuple[Any, ...]) -> None:
        """Annotate the tasks of these collections, if they are by model, with the models' jobs.

        Not by `dask.annotate`: what held when the layers were made goes before what holds now.
        """
        layers = [
            (layer, self._training[model])
            for by_model in collections
            if isinstance(by_model, dict)
            for model, collection in by_model.items()
            for layer in collection.__dask_graph__().layers.values()
        ]
        for layer, job in layers:
            layer.annotations = {**(layer.annotations or {}), "slaq_job": job}

    def scored(self, info: Any) -> None:
        """Report the scores that are new."""
        for model, history in info.items():
            if model in self._training and len(history) > self._reports.get(model, 0):
                self._reports[model] = len(history)
                score = float(history[-1]["score"])
                if math.isfinite(score):
                    self._parts.report(self._training[model], -score)

    def keep(self, models: Any) -> None:
        """End the jobs of all others."""
        keep = set(models)
        ended = [model for model in self._training if model not in keep]
        if ended:
            self._parts.end([self._training.pop(model) for model in ended])


LOOPS = (Loop("dask_ml.model_selection._incremental", "_fit", Search),)
