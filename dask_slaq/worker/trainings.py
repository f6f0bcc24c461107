"""States that a function does not pass itself: of loops by `steps`, and of fits with a callback.

They belong to the first training of a task. A second one would overwrite its state, and a task that
begins anew would find the state of the wrong one. A function that calls ``slaq.resume()`` keeps its
own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterator
from typing import Any, NamedTuple

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_whole, shown
from dask_slaq.worker.reports import find_state, in_trial, this_run
from dask_slaq.worker.states import Mark, here

logger = logging.getLogger(__name__)


class TrainingRecord(NamedTuple):
    """First training of a task, with the `state` from which it goes on; None at first."""

    kind: str
    trial: Hashable
    state: Any

    def keeping(self, make: Callable[[], Any]) -> Callable[[], Mark]:
        """Return what a report takes as the state that `make` returns when it is needed."""
        return lambda: Mark(self.kind, self.trial, make())


def begin_training(kind: str, trial: Hashable = None) -> TrainingRecord | None:
    """Begin to train a model in a task, and return it; None if its states are not kept.

    They are not outside of a search, nor for the second training of a task. `kind` is what keeps
    them, such as a library, which finds only its own; `trial` distinguishes the models of one task:
    that of a state which is found counts.
    """
    run = this_run()
    if run is None or here.began == run or here.asked == run or not in_trial():
        return None
    here.began = run
    try:
        found = find_state()
    except Exception:
        logger.exception("the state of a model could not be read: it begins anew")
        return None
    if isinstance(found, Mark) and found.kind == kind:
        return TrainingRecord(kind, found.trial, found.state)
    return TrainingRecord(kind, trial, None)


def steps(number: int, *parts: Any) -> Iterator[int]:
    """Iterate over the steps of a training, which goes on from where it was on another worker.

    In a task of a `search`, each report in the loop keeps the state of the `parts`, as `report`
    does with a state. When the task begins anew, here or elsewhere, they are set to their last
    state, and the loop goes on with the next step. Elsewhere this is ``range(number)``.

    Parameters
    ----------
    number : int
        Steps of the model.
    *parts : object
        What the steps change: models, optimizers, generators of random numbers, lists, arrays. Each
        is changed in place, by its ``load_state_dict`` (torch, with tensors on the CPU) or its
        attributes (scikit-learn).

    Yields
    ------
    int
        Number of the step, from 0. Report at its end, once.

    Raises
    ------
    InvalidSetting
        The number is not one, or a part cannot be set to an earlier state.

    Examples
    --------
    >>> def train(params):
    ...     model = SGDClassifier(**params)
    ...     for step in slaq.steps(40, model):
    ...         model.partial_fit(X, y, classes=classes)
    ...         slaq.report(log_loss(y_valid, model.predict_proba(X_valid)))
    ...     return model
    """
    if not is_whole(number, 0):
        raise InvalidSetting(f"steps must be a number of steps >= 0, not {shown(number)}")
    ways = [_way_of(part) for part in parts]
    return _steps(number, list(zip(parts, ways, strict=True)))


def _steps(number: int, parts: list[tuple[Any, _Way]]) -> Iterator[int]:
    training, done = begin_training("steps"), 0
    if training is None:
        yield from range(number)
        return
    if training.state is not None:
        then, kept = training.state
        if len(kept) == len(parts):
            done = then
            for (part, way), state in zip(parts, kept, strict=True):
                way.put(part, state)
        else:
            logger.warning(
                "a state has %d parts, not %d: its model begins anew", len(kept), len(parts)
            )

    def make() -> tuple[int, list[Any]]:
        return done, [way.take(part) for part, way in parts]

    try:
        while done < number:
            done += 1
            # The last step is made again if its result is lost: what follows the loop may use what
            # the step leaves, such as its loss.
            here.loop = (this_run(), training.keeping(make)) if done < number else None
            yield done - 1
    finally:
        here.loop = None


class _Way(NamedTuple):
    """How the state of an object is taken, and put back into an equal one."""

    take: Callable[[Any], Any]
    put: Callable[[Any, Any], Any]


def on_cpu(state: Any) -> Any:
    """Return a state with its tensors on the CPU: the next worker may have no GPU."""
    if isinstance(state, dict):
        return type(state)((key, on_cpu(value)) for key, value in state.items())
    if isinstance(state, list | tuple) and not hasattr(state, "_fields"):
        return type(state)(map(on_cpu, state))
    return state.detach().cpu() if hasattr(state, "detach") else state


def _put_attributes(part: Any, state: Any) -> None:
    vars(part).clear()
    vars(part).update(vars(state))


def _replace(part: Any, state: Any) -> None:
    part.clear()
    (part.update if isinstance(part, dict | set) else part.extend)(state)


def _put_array(part: Any, state: Any) -> None:
    part[...] = state


def _way_of(part: Any) -> _Way:
    """Return how the state of a part of a training is kept; raises `InvalidSetting`."""
    if hasattr(part, "state_dict") and hasattr(part, "load_state_dict"):
        return _Way(lambda p: on_cpu(p.state_dict()), lambda p, state: p.load_state_dict(state))
    if hasattr(part, "bit_generator"):  # of NumPy
        return _Way(
            lambda p: p.bit_generator.state,
            lambda p, state: setattr(p.bit_generator, "state", state),
        )
    if hasattr(part, "get_state") and hasattr(part, "set_state"):  # RandomState, torch.Generator
        return _Way(lambda p: p.get_state(), lambda p, state: p.set_state(state))
    if isinstance(part, list | dict | set):
        return _Way(lambda p: p, _replace)
    if hasattr(part, "dtype") and hasattr(part, "__setitem__"):
        return _Way(lambda p: p, _put_array)
    if hasattr(part, "__dict__") and not isinstance(part, type):
        return _Way(lambda p: p, _put_attributes)
    raise InvalidSetting(
        f"steps() cannot set {shown(part)} to an earlier state: pass models, optimizers, lists, "
        "dicts, arrays or random generators, or call slaq.resume() and report(loss, state=...)"
    )
