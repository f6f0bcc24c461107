"""What the last search of a kind tells of models with the same parameters: where they ended."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_slaq.core.trials.priors import Prior

#: Maximum number of models of a kind of searches that are kept.
MOST_MODELS = 200


class PastModel(NamedTuple):
    """Parameters of a model of the last search, and its rank there: 0 is the best, 1 the worst."""

    params: Mapping[str, Any]
    rank: float


def ranks_of(models: Sequence[tuple[Mapping[str, Any], float]], fewest: int = 4) -> list[PastModel]:
    """Return the ranks of models by their final losses, if there are enough.

    The best `MOST_MODELS` are kept.

    >>> ranks_of([({"lr": 0.1}, 3.0), ({"lr": 0.2}, 1.0), ({}, 0.0), ({"lr": 0.3}, 2.0)])
    []
    """
    known = [(params, loss) for params, loss in models if params]
    if len(known) < fewest:
        return []
    known.sort(key=lambda one: one[1])
    found = [PastModel(dict(one[0]), at / (len(known) - 1)) for at, one in enumerate(known)]
    return found[:MOST_MODELS]


def in_order(past: Iterable[PastModel], given: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the order of models by their ranks in the past, the best first.

    Of parameters, those `given` count: the past may have further ones.

    >>> in_order([PastModel({"lr": 1, "epochs": 9}, 0.0)], [{"lr": 3}, {"lr": 1}])
    [1, 0]
    """
    names, ranks = {name for params in given for name in params}, dict[str, float]()
    for params, rank in past:
        key = _key({name: params[name] for name in names if name in params})
        ranks[key] = min(rank, ranks.get(key, 1.0))
    # What was not there is in the middle.
    return sorted(range(len(given)), key=lambda i: ranks.get(_key(given[i]), 0.5))


class Past(Prior):
    """Places of models in the last search of their kind.

    Forecasts and first losses show no more than a correlation of 0.7 where places hold.
    """

    def __init__(self, models: Iterable[PastModel] = ()) -> None:
        super().__init__(0.8, fewest=4, perfect=0.7)
        self._ranks = {_key(params): rank for params, rank in models}

    def __bool__(self) -> bool:
        return bool(self._ranks)

    def rank(self, params: Mapping[str, Any]) -> float | None:
        """Return the rank of the model with the same parameters; None if there was none."""
        return self._ranks.get(_key(params)) if params else None

    def scores(
        self,
        known: Sequence[tuple[float, float]],
        finals: Sequence[float],
        trust: float,
    ) -> list[float]:
        """Return scores of models by their ranks in the past, and by their own scores.

        They lie among the `finals` of all models.
        """
        ranks, own = np.array(known, float).T
        among = np.searchsorted(np.sort(finals), own) / max(len(finals) - 1, 1)
        mixed = trust * ranks + (1 - trust) * np.minimum(among, 1.0)
        found: list[float] = np.quantile(finals, mixed).tolist()
        return found


class PastSearches:
    """Models of past searches by owner and kind, with their ranks in the last one that had them.

    Those of the last `most` owners and kinds are kept.
    """

    def __init__(self, most: int = 50) -> None:
        self._most = most
        self._models: OrderedDict[tuple[str, Hashable], list[PastModel]] = OrderedDict()

    def of(self, owner: str, kind: Hashable) -> list[PastModel]:
        """Return the models of the searches of an owner and a kind."""
        return self._models.get((owner, kind), [])

    def add(self, owner: str, kind: Hashable, models: Iterable[PastModel]) -> list[PastModel]:
        """Keep models, instead of those with the same parameters. Returns all of their kind."""
        found = dict[str, PastModel]()
        for model in (*models, *self.of(owner, kind)):
            found.setdefault(_key(model.params), model)
        self._models[owner, kind] = kept = list(found.values())[:MOST_MODELS]
        self._models.move_to_end((owner, kind))
        if len(self._models) > self._most:
            self._models.popitem(last=False)
        return kept


def _key(params: Mapping[str, Any]) -> str:
    return repr(sorted((name, _plain(value)) for name, value in params.items()))


def _plain(value: Any) -> Any:
    """Return a value as it is after it was stored as JSON."""
    return list(map(_plain, value)) if isinstance(value, list | tuple) else value
