"""Classes that are made on first access, because their base class is an optional library's."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from dask_slaq.adapters.observing import publish, value_of, warn_of, warn_once


def optional(module: str, extra: str) -> Any:
    """Import a module of a library that the extra `extra` of this package installs.

    Raises `ImportError`, which says so, if the library is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        message = f"{library} is not installed: pip install dask-slaq[{extra}]"
        raise ImportError(message) from error


def made_on_access(module: str, **makers: Callable[[], Any]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module: each name is what its maker returns, made once.

    A class is named so that it can be pickled, and with it what uses it.
    """

    @functools.cache
    def make(name: str) -> Any:
        made = makers[name]()
        if isinstance(made, type):
            made.__module__, made.__qualname__ = module, name
        return made

    def get(name: str) -> Any:
        if name in makers:
            return make(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get


class LogReport:
    """Callback that reports one of the metrics that a library logs, always the same one.

    The reports go to the job that is open where the model is trained, or else to the search of the
    task that trains it; elsewhere nothing happens. A training that begins anew is a trial of its
    own. What is no number is not reported, with one warning: a report never fails a training.

    Parameters
    ----------
    monitor : str, optional
        Name of the metric. By default the loss on validation data, or without these the training
        loss.
    maximize : bool
        Whether higher is better; minus the metric is reported then.
    """

    library = ""

    def __init__(self, monitor: str | None = None, maximize: bool = False) -> None:
        super().__init__()
        self.monitor, self.maximize = monitor, maximize
        self._metric = monitor  # of this training
        self._trial: str | None = None

    def begin(self, *, goes_on: bool = False) -> None:
        """Begin a training: another trial, unless it goes on."""
        if not goes_on or self._trial is None:
            self._trial, self._metric = uuid.uuid4().hex[:8], self.monitor

    def report(self, logs: Mapping[str, Any], step: int | None = None) -> bool:
        """Report the metric, of a `step`, if it is logged; False if the training should end."""
        try:
            loss = value_of(logs[self._metric])  # type: ignore[index]
            if self.maximize:
                loss = -loss
        except KeyError:
            there = ", ".join(map(str, logs)) or "nothing"
            warn_once(
                f"{self.library} {self._metric}",
                f"{self.library} did not log {self._metric!r}, so nothing is reported there; "
                f"it logged {there}",
            )
            return True
        except Exception as error:  # whatever the library has logged
            warn_of(error, f"a loss of {self.library} was not reported")
            return True
        return publish(loss, trial=self._trial, step=step)
