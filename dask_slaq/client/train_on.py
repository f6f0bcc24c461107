"""Tasks that go on from the last states of models that have ended: `Search.train_on`."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import dask
from dask.tokenize import tokenize
from dask.utils import key_split
from distributed import Future
from distributed.protocol import pickle

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_whole, shown

if TYPE_CHECKING:
    from distributed import Client

#: Annotations with the names of the last state in Dask's memory, and with the task that kept it.
STATE, FROM = "slaq_state", "slaq_from"


def check_models(keys: Iterable[Any] | None, best: int | None, steps: int) -> dict[str, Any]:
    """Return which models train on, as the scheduler is asked. Raises `InvalidSetting`."""
    if (keys is None) == (best is None):
        raise InvalidSetting("train_on needs either keys or best")
    if best is not None and not is_whole(best, 1):
        raise InvalidSetting(f"best must be a number of models >= 1, not {shown(best)}")
    if not is_whole(steps, 1):
        raise InvalidSetting(f"steps must be a number of steps >= 1, not {shown(steps)}")
    if isinstance(keys, str | bytes | Future):
        keys = [keys]
    some = None if keys is None else [k.key if isinstance(k, Future) else k for k in keys]
    return {"keys": some, "best": best, "steps": steps}


def submit_again(
    client: Client,
    rows: Iterable[Mapping[str, Any]],
    annotations: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> list[Future]:
    """Submit the task of each row again, with some keyword arguments changed.

    Returns their futures. Raises `InvalidSetting` if a function does not take the arguments.
    """
    made = []
    for row in rows:
        task, before = pickle.loads(row["task"]), row["key"]
        key = f"{key_split(before)}-on-{tokenize(before, dict(changes))}"
        made.append((_changed(task, key, changes), {STATE: row["states"] or None, FROM: before}))
    found = []
    for task, known in made:
        with dask.annotate(**annotations, **known):
            found += client.get({task.key: task}, [task.key], sync=False)
    return found


def _changed(task: Any, key: str, changes: Mapping[str, Any]) -> Any:
    """Return a task like another one, with some keyword arguments changed."""
    func, args = getattr(task, "func", None), getattr(task, "args", ())
    arguments = {**(getattr(task, "kwargs", None) or {}), **changes}
    try:
        inspect.signature(func).bind(*args, **arguments)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        name = getattr(func, "__name__", func)
        raise InvalidSetting(
            f"{name} cannot train on: it must take its number of steps as the keyword argument "
            f"'steps', as in client.map({name}, grid, steps=40), or train_on other ones ({error})"
        ) from error
    return type(task)(key, func, *args, **arguments)
