"""skorch callback that reports the loss of each epoch.

`SlaqReport` is created on first access, because its base class is skorch's. It is pickled by name,
so a net with this callback can be sent to workers.
"""

from __future__ import annotations

import functools
import uuid
from typing import Any

from dask_slaq.adapters.observing import check_not_stopped, describe_estimator, publish, warn_once

__all__ = ["SlaqReport"]  # noqa: F822  (created by `__getattr__`)


def __getattr__(name: str) -> Any:
    if name == "SlaqReport":
        return _made()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@functools.cache
def _made() -> type:
    try:
        from skorch.callbacks import Callback
    except ImportError as error:
        raise ImportError("skorch is not installed: pip install dask-slaq[torch]") from error

    class SlaqReport(Callback):  # type: ignore[misc]
        """Callback that reports one entry of a skorch net's history after each epoch.

        The reports go to the job that is open where ``fit`` or ``partial_fit`` runs, or else to the
        search of the task that trains the net, where each ``fit`` is a trial of its own; elsewhere
        nothing happens. *n* epochs give *n* reports.

        Parameters
        ----------
        loss : str
            Name of the entry, where lower is better: ``train_loss``, ``valid_loss``, or an entry
            that another callback of the net records before this one.

        Examples
        --------
        >>> from dask_slaq.adapters.skorch import SlaqReport  # doctest: +SKIP
        >>> net = NeuralNetClassifier(Module, callbacks=[SlaqReport()])  # doctest: +SKIP
        """

        _trial: str | None = None

        def __init__(self, loss: str = "train_loss") -> None:
            self.loss = loss

        def on_train_begin(self, net: Any, **kwargs: Any) -> None:
            check_not_stopped()
            if not net.history:
                self._trial = uuid.uuid4().hex[:8]
            describe_estimator("skorch", net)

        def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
            epoch = net.history[-1]
            if self.loss in epoch:
                if not publish(epoch[self.loss], trial=self._trial):
                    # skorch's way to end a fit early, which keeps the net so far.
                    raise KeyboardInterrupt
                return
            recorded = ", ".join(name for name in epoch if name.endswith("_loss")) or "none"
            warn_once(
                f"skorch {self.loss}",
                f"the net records no {self.loss!r}, so nothing is reported; it records {recorded}",
            )

    SlaqReport.__module__, SlaqReport.__qualname__ = __name__, "SlaqReport"
    return SlaqReport
