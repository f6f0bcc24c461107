"""skorch callback that reports the loss of each epoch."""

from __future__ import annotations

import uuid
from typing import Any

from dask_slaq.adapters.observing import check_not_stopped, describe_estimator, publish, warn_once
from dask_slaq.adapters.optional import made_on_access, optional

__all__ = ["SlaqReport"]  # noqa: F822  (created by `__getattr__`)


def _made() -> type:
    class SlaqReport(optional("skorch.callbacks", "torch").Callback):  # type: ignore[misc]
        """Callback that reports one entry of a skorch net's history after each epoch.

        The reports go to the job that is open where ``fit`` or ``partial_fit`` runs, or else to the
        search of the task that trains the net, where each ``fit`` is a trial of its own; elsewhere
        nothing happens. *n* epochs give *n* reports.

        `loss` is the name of the entry, where lower is better: ``train_loss``, ``valid_loss``, or
        an entry that another callback of the net records before this one.

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
                if not publish(epoch[self.loss], trial=self._trial, step=len(net.history)):
                    # skorch's way to end a fit early, which keeps the net so far.
                    raise KeyboardInterrupt
                return
            recorded = ", ".join(name for name in epoch if name.endswith("_loss")) or "none"
            warn_once(
                f"skorch {self.loss}",
                f"the net records no {self.loss!r}, so nothing is reported; it records {recorded}",
            )

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)
