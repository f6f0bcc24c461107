"""skorch callback that reports the loss of each epoch."""

from __future__ import annotations

from typing import Any

from dask_slaq.adapters.callbacks import TrainingReport
from dask_slaq.adapters.observing import check_not_stopped, describe_estimator
from dask_slaq.adapters.optional import made_on_access, optional


def state_of(net: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the states of a net's modules, criteria and optimizers, on the CPU; its history."""
    from dask_slaq.worker import on_cpu

    names = [f"{name}_" for name in (*net._modules, *net._criteria, *net._optimizers)]
    return {name: on_cpu(getattr(net, name).state_dict()) for name in names}, list(net.history)


def _made() -> type:
    base: Any = optional("skorch.callbacks", "torch").Callback

    class SlaqReport(TrainingReport, base):  # type: ignore[misc]
        """Callback that reports one entry of a skorch net's history after each epoch.

        The reports go to the job that is open where ``fit`` or ``partial_fit`` runs, or else to the
        search of the task that trains the net, where each ``fit`` is a trial of its own; elsewhere
        nothing happens. *n* epochs give *n* reports.

        A ``fit`` in a search keeps the weights, the state of the optimizer and the history, so that
        it goes on after its worker has died, and elsewhere. What other callbacks hold is not kept.

        `loss` is the name of the entry, where lower is better: ``train_loss``, ``valid_loss``, or
        an entry that another callback of the net records before this one.

        Examples
        --------
        >>> from dask_slaq.adapters.skorch import SlaqReport  # doctest: +SKIP
        >>> net = NeuralNetClassifier(Module, callbacks=[SlaqReport()])  # doctest: +SKIP
        """

        library = "skorch"
        _epochs: int | None = None  # of the net, while fewer are left

        def __init__(self, loss: str = "train_loss") -> None:
            self.loss = loss

        def on_train_begin(self, net: Any, **kwargs: Any) -> None:
            check_not_stopped()
            if not net.history:
                kept = self.begin(keeps=True)
                if kept is not None:
                    self._go_on(net, *kept)
            describe_estimator("skorch", net)

        def _go_on(self, net: Any, states: dict[str, Any], history: list[Any]) -> None:
            for name, state in states.items():
                getattr(net, name).load_state_dict(state)
            net.history.extend(history)
            self._epochs = net.max_epochs
            net.max_epochs = max(net.max_epochs - len(history), 0)

        def _reset_epochs(self, net: Any) -> None:
            if self._epochs is not None:
                net.max_epochs, self._epochs = self._epochs, None

        def on_epoch_begin(self, net: Any, **kwargs: Any) -> None:
            self._reset_epochs(net)

        def on_train_end(self, net: Any, **kwargs: Any) -> None:
            self._reset_epochs(net)

        def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
            epoch, step = net.history[-1], len(net.history)
            if self.loss not in epoch:
                self.warn_of_lack(repr(self.loss), (n for n in epoch if n.endswith("_loss")))
            elif not self.send(lambda: epoch[self.loss], step, lambda: state_of(net)):
                # skorch's way to end a fit early, which keeps the net so far.
                raise KeyboardInterrupt

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)
