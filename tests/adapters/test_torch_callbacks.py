"""skorch nets and Lightning trainers report each epoch through one callback."""

import functools
import pickle
import warnings

import numpy as np
import pytest
from adapters.libraries import fit_lightning, reported

from dask_slaq.adapters import instrument, observe_fits
from dask_slaq.adapters.observing import session as blocks
from dask_slaq.core.errors import StopTraining


@pytest.fixture(autouse=True)
def said(monkeypatch):
    monkeypatch.setattr(blocks, "_warned", set())


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

    losses, kinds = [], []
    with observe_fits(losses.append, describe=kinds.append):
        net = skorch_net(SlaqReport(loss)).fit(*rows)
    (kind,) = kinds
    name = kind["name"]
    assert name.startswith("skorch/NeuralNetRegressor") and "Linear" in name and "SGD" in name
    assert (kind["lr"], kind["batch_size"]) == (0.1, 128)
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
    with reported() as losses:
        clone(skorch_net(SlaqReport())).fit(*rows)
    assert len(losses) == 3


def test_a_loss_that_skorch_does_not_record_costs_one_warning(skorch_net, rows):
    from dask_slaq.adapters.skorch import SlaqReport

    with warnings.catch_warnings(record=True) as caught, instrument([].append):
        warnings.simplefilter("always")
        skorch_net(SlaqReport("loss")).fit(*rows)
    (message,) = [str(w.message) for w in caught if "logs no" in str(w.message)]
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
def train_lightning(rows, tmp_path):
    pytest.importorskip("lightning.pytorch")
    return functools.partial(fit_lightning, rows, tmp_path)


def test_a_lightning_trainer_reports_each_epoch(train_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    losses, kinds = [], []
    with observe_fits(losses.append, describe=kinds.append):
        module = train_lightning(SlaqReport())
    assert kinds == [{"name": "lightning/Line/SGD", "lr": 0.1, "batches": 4}]
    steps = np.array(module.seen).reshape(3, 4)
    np.testing.assert_allclose(losses, steps.mean(axis=1), rtol=1e-6)
    assert all(type(loss) is float for loss in losses)
    assert train_lightning().seen == module.seen


def test_a_lightning_trainer_reports_a_logged_metric(train_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    with reported() as losses:
        module = train_lightning(SlaqReport("step_loss"))
    np.testing.assert_allclose(losses, module.seen[3::4], rtol=1e-6)


def test_a_metric_that_is_not_logged_costs_one_warning(train_lightning):
    from dask_slaq.adapters.lightning import SlaqReport

    wanted = "no metric 'val_loss'"
    with pytest.warns(RuntimeWarning, match=wanted) as said, instrument([].append):
        train_lightning(SlaqReport("val_loss"))
    (message,) = [str(each.message) for each in said if wanted in str(each.message)]
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


def test_a_lightning_trainer_reports_to_the_search_of_its_task(train_lightning, search):
    from dask_slaq.adapters.lightning import SlaqReport

    module = train_lightning(SlaqReport())
    steps = np.array(module.seen).reshape(3, 4)
    np.testing.assert_allclose(search.only, steps.mean(axis=1), rtol=1e-6)
    search.losses.clear()
    search.ends_after = 2
    module = train_lightning(SlaqReport())
    assert len(search.only) == 2 and len(module.seen) == 2 * 4
