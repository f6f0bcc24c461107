"""Lightning callback that reports the loss of each epoch."""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dask_slaq.adapters.observing import (
    begin_trial,
    describe,
    expect,
    kind_of,
    publish,
    warn_once,
)
from dask_slaq.adapters.optional import made_on_access, optional


def _base() -> type:
    """Return the ``Callback`` class of the installed one of Lightning's two packages."""
    other = find_spec("lightning") is None and find_spec("pytorch_lightning") is not None
    module = optional("pytorch_lightning" if other else "lightning.pytorch", "torch")
    return module.Callback


def checkpoint_of(trainer: Any) -> bytes:
    """Return a checkpoint of a trainer, as it writes it to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "state.ckpt")
        trainer.save_checkpoint(path)
        return path.read_bytes()


def _made() -> type:
    class SlaqReport(_base()):  # type: ignore[misc]
        """Callback that reports the mean training loss, or a logged metric, after each epoch.

        The reports go to the job that is open where ``Trainer.fit`` is called, or else to the
        search of the task that calls it; elsewhere nothing happens. *n* epochs give *n* reports,
        from the process of global rank 0 only.

        `monitor` is a metric that the module logs, where lower is better, such as ``val_loss``. By
        default it is the loss that ``training_step`` returns, averaged over the epoch.

        With `checkpoint`, models of a search go on after their worker has died, and elsewhere.

        Examples
        --------
        >>> from dask_slaq.adapters.lightning import SlaqReport  # doctest: +SKIP
        >>> report = SlaqReport()  # doctest: +SKIP
        >>> trainer = Trainer(callbacks=[report])  # doctest: +SKIP
        >>> trainer.fit(module, loader, ckpt_path=report.checkpoint())  # doctest: +SKIP
        """

        def __init__(self, monitor: str | None = None) -> None:
            self.monitor = monitor
            self._trial: Any = None
            self._training: Any = None  # whose states are kept
            self._file: str | None = None  # from which it goes on
            self._begin()

        def checkpoint(self) -> str | None:
            """Return the path of the last checkpoint that was kept of this task; None at first.

            Pass it to ``Trainer.fit`` as ``ckpt_path``, which sets all to it: module, optimizers,
            loops and callbacks. The file is removed once it is read.
            """
            self._trial, self._training, state = begin_trial("lightning")
            if state is not None:
                number, self._file = tempfile.mkstemp(suffix=".ckpt")
                with os.fdopen(number, "wb") as file:
                    file.write(state)
            return self._file

        def _begin(self) -> None:
            self._sum: Any = 0.0
            self._steps = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if self._file is not None:
                Path(self._file).unlink(missing_ok=True)
                self._file = None
            if self._training is None and trainer.current_epoch == 0:
                self._trial = uuid.uuid4().hex[:8]
            expect(trainer.max_epochs)
            with contextlib.suppress(Exception):  # optimizers of a kind of their own
                steps = trainer.optimizers[:1]
                numbers = {"batches": trainer.num_training_batches}
                if steps:
                    numbers["lr"] = steps[0].param_groups[0]["lr"]
                describe(kind_of("lightning", (type(pl_module), *map(type, steps)), numbers))

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._begin()

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, *args: Any, **kwargs: Any
        ) -> None:
            loss = outputs.get("loss") if hasattr(outputs, "get") else outputs
            if self.monitor is None and loss is not None:
                # Keep a tensor: reading its value would make an accelerator wait in each step.
                self._sum = self._sum + loss.detach()
                self._steps += 1

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            stop = trainer.is_global_zero and not self._publish(trainer)
            # All processes must end after the same epoch, and only the first one reports.
            stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
            trainer.should_stop = trainer.should_stop or stop

        def _publish(self, trainer: Any) -> bool:
            epoch, state = trainer.current_epoch + 1, None
            if self._training is not None and trainer.world_size == 1:
                state = self._training.keeping(lambda: checkpoint_of(trainer))
            if self.monitor in trainer.callback_metrics:
                metric = trainer.callback_metrics[self.monitor]
                return publish(metric, trial=self._trial, step=epoch, state=state)
            if self._steps:
                loss = self._sum / self._steps
                return publish(loss, trial=self._trial, step=epoch, state=state)
            self._say_what_there_is(trainer)
            return True

        def _say_what_there_is(self, trainer: Any) -> None:
            wanted = "no loss" if self.monitor is None else f"no metric {self.monitor!r}"
            logged = ", ".join(map(str, trainer.callback_metrics)) or "no metrics"
            warn_once(
                f"lightning {self.monitor}",
                f"there is {wanted} to report: training_step returns none, or did not log it; "
                f"the module logs {logged}",
            )

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)
