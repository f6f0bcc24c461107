"""Kinds of fits: a name (library, estimator, choices) and numbers, by which curves are alike.

See `dask_slaq.core.memory.Kind`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from numbers import Real
from typing import Any

from dask_slaq.adapters.observing.session import current, warn_of

#: Parameters of estimators that shape their loss curves: choices, and numbers.
CHOICES = (
    *("loss", "penalty", "solver", "learning_rate", "activation", "kernel", "init", "algorithm"),
    *("module", "criterion", "optimizer", "hidden_layer_sizes"),
)
NUMBERS = (
    *("C", "alpha", "l1_ratio", "eta0", "lr", "learning_rate", "learning_rate_init", "momentum"),
    *("lamduh", "rho", "batch_size", "n_clusters", "n_components", "degree", "gamma"),
    *("max_depth", "max_leaf_nodes", "l2_regularization", "subsample", "power_t"),
)
#: Maximum number of characters of one choice in a name, and of the name.
LONGEST_CHOICE, LONGEST = 40, 256


def describe(kind: Mapping[str, Any]) -> None:
    """Pass the kind of a fit that begins, see `kind_of`, to the innermost block; never raise."""
    block = current()
    if block is None or block.describe is None:
        return
    try:
        block.describe(kind)
    except Exception as error:
        warn_of(error, "the kind of a fit was not told", block.said)


def kind_of(
    fit: str, choices: Iterable[object] = (), numbers: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return a kind as `dask_slaq.core.memory.read_kind` takes it.

    `fit` names library and estimator, such as ``"dask_glm.admm"``. Choices other than strings,
    classes and tuples of numbers are left out, and so are numbers that are not finite and >= 0.
    """
    known = (text for choice in choices if (text := _text_of(choice)))
    return {**numbers_in(numbers or {}), "name": "/".join([fit, *known])[:LONGEST]}


def sizes_of(data: Any) -> dict[str, float]:
    """Return the ``rows``, ``columns`` and ``chunks`` (of rows) of data, as far as known."""
    found: dict[str, Any] = {}
    try:
        shape = getattr(data, "shape", ())
        found["rows"] = shape[0] if len(shape) else None
        found["columns"] = (shape[1] if len(shape) == 2 else 1) if len(shape) else None
        blocks = getattr(data, "numblocks", None) or (getattr(data, "npartitions", None),)
        found["chunks"] = blocks[0]
    except Exception:  # data of a kind of its own
        pass
    return numbers_in(found)


def kind_of_estimator(fit: str, model: Any, data: Any = None) -> dict[str, Any]:
    """Return the kind of the fit of an estimator: its class, parameters and size of the data.

    Of an estimator without scikit-learn's ``get_params`` only the class is known.
    """
    try:
        params = model.get_params(deep=False)
    except Exception:
        params = {}
    choices = [params[name] for name in CHOICES if name in params]
    numbers = {name: params[name] for name in NUMBERS if name in params}
    return kind_of(fit, (type(model), *choices), {**sizes_of(data), **numbers})


def describe_estimator(fit: str, model: Any, data: Any = None) -> None:
    """Pass the kind of the fit of an estimator to the open block. See `kind_of_estimator`."""
    if current() is not None:
        describe(kind_of_estimator(fit, model, data))


def numbers_in(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers >= 0 among values; booleans are not numbers."""
    found = {}
    for name, value in values.items():
        value = value.item() if hasattr(value, "item") and getattr(value, "ndim", 1) == 0 else value
        if isinstance(value, Real) and not isinstance(value, bool):
            number = float(value)
            if math.isfinite(number) and number >= 0:
                found[name] = number
    return found


def _text_of(choice: object) -> str | None:
    if isinstance(choice, str):
        return choice[:LONGEST_CHOICE]
    if isinstance(choice, type):
        return choice.__name__[:LONGEST_CHOICE]
    if isinstance(choice, tuple) and all(isinstance(part, int) for part in choice):
        return "x".join(map(str, choice))[:LONGEST_CHOICE]
    return None
