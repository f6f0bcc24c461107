"""Keras callback that reports the loss of each epoch."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from dask_slaq.adapters.callbacks import LogReport
from dask_slaq.adapters.observing import describe, expect, kind_of
from dask_slaq.adapters.optional import made_on_access, optional


def _made() -> type:
    class SlaqReport(LogReport, optional("keras.callbacks", "keras").Callback):  # type: ignore[misc]
        """Callback that reports ``val_loss``, or else ``loss``, after each epoch; see `LogReport`.

        It is ``val_loss`` if the first epoch logs it. *n* epochs give *n* reports.

        Examples
        --------
        >>> from dask_slaq.adapters.keras import SlaqReport  # doctest: +SKIP
        >>> model.fit(X, y, validation_split=0.2, callbacks=[SlaqReport()])  # doctest: +SKIP
        """

        library = "keras"

        def on_train_begin(self, logs: Any = None) -> None:
            self._begins = True
            expect(self.params.get("epochs"))
            with contextlib.suppress(Exception):  # a model of a kind of its own
                choices = type(self.model), type(self.model.optimizer)
                describe(kind_of("keras", choices, {"batches": self.params.get("steps")}))

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            if self._begins:
                self._begins = False
                self.begin_training(goes_on=epoch > 0)  # by `initial_epoch`

        def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
            logs = logs or {}
            if self._metric is None:
                self._metric = "val_loss" if "val_loss" in logs else "loss"
            if not self.report(logs, epoch + 1):
                self.model.stop_training = True

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)
