"""skorch nets and Lightning trainers report each epoch through one callback."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest

from dask_slaq.adapters import instrument
from dask_slaq.adapters.observing import session as blocks
from dask_slaq.core.errors import StopTraining


@pytest.fixture(autouse=True)
def said(monkeypatch):
    monkeypatch.setattr(blocks, "_said", set())


@pytest.fixture
def rows():
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 3)).astype("f4")
    return x, (x[:, :1] - x[:, 1:2]).astype("f4")


@pytest.fixture
def skorch_net():
    torch = pytest.importorskip("torch")
    skorch = pytest.importorskip("skorch")

    def net(*callbacks, epochs=3):
        torch.manual_seed(0)
        return skorch.NeuralNetRegressor(
            torch.nn.Linear,
            module__in_features=3,
            module__out_features=1,
            max_epochs=epochs,
            lr=0.1,
            verbose=0,
            callbacks=list(callbacks),
        )

    return net


@pytest.mark.parametrize("loss", ["train_loss", "valid_loss"])
def test_a_skorch_net_reports_each_epoch(skorch_net, rows, loss):
    from dask_slaq.adapters.skorch import SlaqReport

    losses = []
    with instrument(losses.append):
        net = skorch_net(SlaqReport(loss)).fit(*rows)
    assert losses == net.history[:, loss]
    assert len(losses) == 3 and all(type(value) is float for value in losses)
    plain = skorch_net().fit(*rows)
    np.testing.assert_array_equal(net.predict(rows[0]), plain.predict(rows[0]))
    net.partial_fit(*rows)  # outside a block nothing is reported
    assert len(losses) == 3


def test_a_skorch_net_under_incremental_reports_each_block(client, skorch_net, rows):
    import dask.array as da
    import torch
    from dask_ml.wrappers import Incremental

    x, y = rows[0], rows[1].ravel()  # dask-ml takes no other

    def flat():
        net = skorch_net(epochs=2)
        module = torch.nn.Sequential(torch.nn.Linear(3, 1), torch.nn.Flatten(0))
        return type(net)(module, max_epochs=2, lr=0.1, verbose=0).initialize()

    losses, expected = [], []
    with instrument(losses.append):
        model = Incremental(flat(), shuffle_blocks=False)
        model.partial_fit(da.from_array(x, chunks=(16, 3)), da.from_array(y, chunks=16))
    by_hand = flat()
    for block in np.split(np.arange(64), 4):
        by_hand.partial_fit(x[block], y[block])
        expected.append(by_hand.history[-1, "train_loss"])
    assert losses == pytest.approx(expected)
    np.testing.assert_array_equal(model.estimator_.predict(x), by_hand.predict(x))


def test_a_skorch_net_with_the_callback_can_be_cloned_and_sent(skorch_net, rows):
    from sklearn.base import clone

    from dask_slaq.adapters.skorch import SlaqReport

    assert type(pickle.loads(pickle.dumps(SlaqReport("valid_loss")))) is SlaqReport
    losses = []
    with instrument(losses.append):
        clone(skorch_net(SlaqReport())).fit(*rows)
    assert len(losses) == 3


def test_a_loss_that_skorch_does_not_record_costs_one_warning(skorch_net, rows):
    from dask_slaq.adapters.skorch import SlaqReport

    with warnings.catch_warnings(record=True) as caught, instrument([].append):
        warnings.simplefilter("always")
        skorch_net(SlaqReport("loss")).fit(*rows)
    (message,) = [str(w.message) for w in caught if "records no" in str(w.message)]
    assert "'loss'" in message and "train_loss, valid_loss" in message


def test_a_skorch_net_reports_to_the_search_of_its_task(skorch_net, rows, search):
    from dask_slaq.adapters.skorch import SlaqReport

    net = skorch_net(SlaqReport()).fit(*rows)
    assert search.only == net.history[:, "train_loss"]
    net.partial_fit(*rows)
    assert search.only == net.history[:, "train_loss"] and len(search.only) == 6
    net.fit(*rows)  # from the start: another trial
    assert [len(losses) for losses in search.losses.values()] == [6, 3]
    search.losses.clear()
    search.ends_after = 2
    net = skorch_net(SlaqReport()).fit(*rows)
    assert len(net.history) == len(search.only) == 2


@pytest.fixture
def fit_lightning(rows, tmp_path):
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")

    class Line(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(3, 1)
            self.seen = []

        def training_step(self, batch, index):
            loss = torch.nn.functional.mse_loss(self.line(batch[0]), batch[1])
            self.seen.append(float(loss.detach()))
            self.log("step_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(*callbacks):
        torch.manual_seed(0)
        module = Line()
        data = torch.utils.data.TensorDataset(*map(torch.from_numpy, rows))
        loader = torch.utils.data.DataLoader(data, batch_size=16)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            lightning.Trainer(
                max_epochs=3,
                accelerator="cpu",
                logger=False,
                enable_checkpointing=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                default_root_dir=tmp_path,
                callbacks=list(callbacks),
            ).fit(module, loader)
        return module, [str(w.message) for w in caught]

    return fit


def test_a_lightning_trainer_reports_each_epoch(fit_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    losses = []
    with instrument(losses.append):
        module, _ = fit_lightning(SlaqReport())
    steps = np.array(module.seen).reshape(3, 4)
    np.testing.assert_allclose(losses, steps.mean(axis=1), rtol=1e-6)
    assert all(type(loss) is float for loss in losses)
    assert fit_lightning()[0].seen == module.seen


def test_a_lightning_trainer_reports_a_logged_metric(fit_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    losses = []
    with instrument(losses.append):
        module, _ = fit_lightning(SlaqReport("step_loss"))
    np.testing.assert_allclose(losses, module.seen[3::4], rtol=1e-6)


def test_a_metric_that_is_not_logged_costs_one_warning(fit_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    with instrument([].append):
        _, said = fit_lightning(SlaqReport("val_loss"))
    (message,) = [text for text in said if "no metric 'val_loss'" in text]
    assert "step_loss" in message


def stop_at_the_second(losses):
    def report(loss):
        losses.append(loss)
        if len(losses) == 2:
            raise StopTraining("enough")

    return instrument(report)


def test_a_stopped_skorch_net_keeps_its_weights(skorch_net, rows):
    from dask_slaq.adapters.skorch import SlaqReport

    losses = []
    with stop_at_the_second(losses):
        net = skorch_net(SlaqReport(), epochs=50).fit(*rows)
    assert len(losses) == len(net.history) == 2
    plain = skorch_net(epochs=2).fit(*rows)
    np.testing.assert_array_equal(net.predict(rows[0]), plain.predict(rows[0]))


def test_a_stopped_lightning_trainer_ends_after_the_epoch(fit_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    losses = []
    with stop_at_the_second(losses):
        module, _ = fit_lightning(SlaqReport())
    assert len(losses) == 2
    assert len(module.seen) == 2 * 4


def test_a_lightning_trainer_reports_to_the_search_of_its_task(fit_lightning, search):
    from dask_slaq.adapters.lightning import SlaqReport

    module, _ = fit_lightning(SlaqReport())
    steps = np.array(module.seen).reshape(3, 4)
    np.testing.assert_allclose(search.only, steps.mean(axis=1), rtol=1e-6)
    search.losses.clear()
    search.ends_after = 2
    module, _ = fit_lightning(SlaqReport())
    assert len(search.only) == 2 and len(module.seen) == 2 * 4
