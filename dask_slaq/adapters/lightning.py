"""Lightning callback that reports the loss of each epoch."""

from __future__ import annotations

import contextlib
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from dask_slaq.adapters.callbacks import TrainingReport
from dask_slaq.adapters.observing import describe, expect, kind_of
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
    base: Any = _base()

    class SlaqReport(TrainingReport, base):  # type: ignore[misc]
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

        library = "lightning"

        def __init__(self, monitor: str | None = None) -> None:
            self.monitor = monitor
            self._file: str | None = None  # from which it goes on
            self._begin_epoch()

        def checkpoint(self) -> str | None:
            """Return the path of the last checkpoint that was kept of this task; None at first.

            Pass it to ``Trainer.fit`` as ``ckpt_path``, which sets all to it: module, optimizers,
            loops and callbacks. The file is removed once it is read.
            """
            state = self.begin(keeps=True)
            if state is not None:
                number, self._file = tempfile.mkstemp(suffix=".ckpt")
                with os.fdopen(number, "wb") as file:
                    file.write(state)
            return self._file

        def _begin_epoch(self) -> None:
            self._sum: Any = 0.0
            self._steps = 0

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            if self._file is not None:
                Path(self._file).unlink(missing_ok=True)
                self._file = None
            if self._training is None and trainer.current_epoch == 0:
                self.begin()
            expect(trainer.max_epochs)
            with contextlib.suppress(Exception):  # optimizers of a kind of their own
                steps = trainer.optimizers[:1]
                numbers = {"batches": trainer.num_training_batches}
                if steps:
                    numbers["lr"] = steps[0].param_groups[0]["lr"]
                describe(kind_of("lightning", (type(pl_module), *map(type, steps)), numbers))

        def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
            self._begin_epoch()

        def on_train_batch_end(
            self, trainer: Any, pl_module: Any, outputs: Any, *args: Any, **kwargs: Any
        ) -> None:
            loss = outputs.get("loss") if hasattr(outputs, "get") else outputs
            if self.monitor is None and loss is not None:
                # Keep a tensor: reading its value would make an accelerator wait in each step.
                self._sum = self._sum + loss.detach()
                self._steps += 1

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            stop = trainer.is_global_zero and not self._report(trainer)
            # All processes must end after the same epoch, and only the first one reports.
            stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
            trainer.should_stop = trainer.should_stop or stop

        def _report(self, trainer: Any) -> bool:
            def read() -> Any:
                if self.monitor in trainer.callback_metrics:
                    return trainer.callback_metrics[self.monitor]
                if self._steps:
                    return self._sum / self._steps
                wanted = "loss" if self.monitor is None else f"metric {self.monitor!r}"
                self.warn_of_lack(wanted, trainer.callback_metrics)
                return None

            alone = trainer.world_size == 1
            make_state = (lambda: checkpoint_of(trainer)) if alone else None
            return self.send(read, trainer.current_epoch + 1, make_state)

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)
