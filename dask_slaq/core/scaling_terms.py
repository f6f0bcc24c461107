"""Settings of workers by their value, checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import MOST_PRICE, is_number, is_whole, require, shown

#: Largest number of workers that is compared.
MOST_WORKERS = 1000


class ScalingTerms(NamedTuple):
    """What workers cost, and how many there may be."""

    price: float  # of one worker for an hour, in the unit in which people say what time is worth
    minimum: int = 0  # workers
    maximum: int = 64  # workers
    stay: float = 60.0  # seconds for which a worker stays at least
    start_up: float = 30.0  # seconds from the request to the first task, until some have come
    rule: str | None = None  # class path or name of what chooses the number instead of us

    @property
    def unit(self) -> str:
        """Unit of amounts, for people; empty where the price says it."""
        return "worker-hours" if self == IN_HOURS else ""

    @property
    def per_second(self) -> float:
        """Price of one worker for a second."""
        return self.price / 3600.0


#: Terms where none are set: amounts are in worker-hours.
IN_HOURS = ScalingTerms(1.0)


def check_scaling(value: Any) -> ScalingTerms:
    """Return the settings in ``slaq.scaling``, with times in seconds, or raise `InvalidSetting`."""
    require("it", value, isinstance(value, Mapping), "a mapping with a price")
    given = {str(key).replace("-", "_"): number for key, number in value.items()}
    for key in given:
        if key not in ScalingTerms._fields:
            allowed = ", ".join(name.replace("_", "-") for name in ScalingTerms._fields)
            raise InvalidSetting(
                f"{shown(key)} is not a setting of scaling; allowed are: {allowed}"
            )
    price: Any = given.get("price")
    ok = is_number(price) and 0 < price <= MOST_PRICE
    require("price", price, ok, "what a worker costs for an hour, a number > 0")
    terms = ScalingTerms(**{"price": float(price), **{k: given[k] for k in given if k != "price"}})
    for key in ("minimum", "maximum"):
        count = getattr(terms, key)
        ok = is_whole(count, 0) and count <= MOST_WORKERS
        require(key, count, ok, f"a whole number of workers from 0 to {MOST_WORKERS}")
    if terms.minimum > terms.maximum or terms.maximum < 1:
        raise InvalidSetting(
            f"maximum must be at least 1 and at least the minimum, not {terms.maximum} with a "
            f"minimum of {terms.minimum}"
        )
    for key in ("stay", "start_up"):
        seconds = getattr(terms, key)
        if not (is_number(seconds) and 0 <= seconds <= 86_400):
            name = key.replace("_", "-")
            raise InvalidSetting(f"{name} must be a time from 0 to 1 day, not {shown(seconds)}")
    require("rule", terms.rule, terms.rule is None or isinstance(terms.rule, str), "a class path")
    return terms._replace(
        minimum=int(terms.minimum),
        maximum=int(terms.maximum),
        stay=float(terms.stay),
        start_up=float(terms.start_up),
    )
