"""Callback of Hugging Face's trainer that reports the loss of each evaluation."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from dask_slaq.adapters.callbacks import LogReport
from dask_slaq.adapters.observing import check_not_stopped, describe, kind_of
from dask_slaq.adapters.optional import made_on_access, optional


def _made() -> type:
    base: Any = optional("transformers", "transformers").TrainerCallback

    class SlaqReport(LogReport, base):  # type: ignore[misc]
        """Callback that reports ``eval_loss``, or else ``loss``, whenever it is logged.

        See `LogReport`. It is ``eval_loss`` if the trainer has an ``eval_strategy``. *n*
        evaluations, or logs of the loss, give *n* reports, from the process of rank 0 only.

        Examples
        --------
        >>> from dask_slaq.adapters.transformers import SlaqReport  # doctest: +SKIP
        >>> Trainer(model, args, callbacks=[SlaqReport()], ...).train()  # doctest: +SKIP
        """

        library = "transformers"
        _trains = False

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            check_not_stopped()
            self._trains, self._reports = True, 0
            self._others: dict[str, Any] = {}  # what else was logged
            self.begin_training(goes_on=state.global_step > 0)  # from a checkpoint
            if self._metric is None:
                how = getattr(args, "eval_strategy", "no")
                validates = getattr(how, "value", how) != "no"
                self._metric = "eval_loss" if validates else "loss"
            with contextlib.suppress(Exception):  # a model of a kind of its own
                numbers = {"lr": args.learning_rate, "steps": state.max_steps}
                describe(kind_of("transformers", (type(kwargs["model"]),), numbers))

        def on_log(
            self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None,
            **kwargs: Any,
        ) -> None:  # fmt: skip
            if not self._trains or not state.is_world_process_zero or not logs:
                return
            # It logs dicts of many kinds: of training, evaluation, and times.
            if self._metric not in logs:
                self._others.update(logs)
                return
            self._reports += 1
            if not self.report(logs):
                control.should_training_stop = True

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self._trains = False
            if not self._reports and state.is_world_process_zero:
                self.report(self._others)  # which warns

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)
