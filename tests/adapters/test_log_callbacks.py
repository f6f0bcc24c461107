"""Models of Keras and Hugging Face's trainer report what their library logs."""

import os
import pickle
import warnings

import numpy as np
import pytest

from dask_slaq.adapters import instrument, observe_fits
from dask_slaq.adapters.observing import session as blocks

X = np.random.default_rng(0).normal(size=(64, 3)).astype("f4")
Y = (X[:, :1] - X[:, 1:2]).astype("f4")
EPOCHS = 4


@pytest.fixture(autouse=True)
def said(monkeypatch):
    monkeypatch.setattr(blocks, "_warned", set())


def fit_keras(tmp_path, *callbacks, validates=True, **how):
    """Train a model. Returns its weights, and the losses that it has logged."""
    pytest.importorskip("torch")
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    valid = {"validation_data": (X[48:], Y[48:])} if validates else {}
    given = {"epochs": EPOCHS, "verbose": 0, "callbacks": list(callbacks)}
    log = model.fit(X[:48], Y[:48], **given | valid | how).history
    return np.asarray(model.get_weights()[0]), log["val_loss" if validates else "loss"]


def fit_transformers(tmp_path, *callbacks, validates=True, **how):
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")

    class Line(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(3, 1)

        def forward(self, x, labels=None):
            found = self.line(x)
            return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}

    torch.manual_seed(0)
    rows = [{"x": x, "labels": y} for x, y in zip(X, Y, strict=True)]
    when = "epoch" if validates else "no"
    given = {
        "num_train_epochs": EPOCHS, "eval_strategy": when, "logging_strategy": "epoch",
        "save_strategy": "no", "report_to": [], "disable_tqdm": True, "use_cpu": True,
        "per_device_train_batch_size": 16, "learning_rate": 0.1,
    }  # fmt: skip
    trainer = transformers.Trainer(
        Line(),
        transformers.TrainingArguments(str(tmp_path), **given | how),
        train_dataset=rows[:48],
        eval_dataset=rows[48:],
        callbacks=list(callbacks),
    )
    trainer.train()
    trainer.evaluate()  # after the training: reported by nobody
    name = "eval_loss" if validates else "loss"
    logged = [logs[name] for logs in trainer.state.log_history if name in logs]
    return trainer.model.line.weight.detach().numpy(), logged[: len(logged) - validates]


@pytest.fixture(params=[fit_keras, fit_transformers], ids=["keras", "transformers"])
def fit(request, tmp_path):
    return lambda *callbacks, **how: request.param(tmp_path, *callbacks, **how)


@pytest.fixture
def report(request):
    """Make a callback of the library that is trained."""
    name = request.node.callspec.params["fit"].__name__.removeprefix("fit_")

    def make(*given, **how):
        pytest.importorskip("torch")
        os.environ.setdefault("KERAS_BACKEND", "torch")
        pytest.importorskip(name)
        module = __import__(f"dask_slaq.adapters.{name}", fromlist=["SlaqReport"])
        return module.SlaqReport(*given, **how)

    return make


@pytest.mark.parametrize("validates", [True, False])
def test_each_epoch_is_reported_and_the_model_is_the_same(fit, report, validates):
    losses, kinds = [], []
    with observe_fits(losses.append, describe=kinds.append):
        weights, logged = fit(report(), validates=validates)
    np.testing.assert_allclose(losses, logged)
    assert len(losses) == EPOCHS and all(type(loss) is float for loss in losses)
    assert len(kinds) == 1
    np.testing.assert_array_equal(weights, fit(validates=validates)[0])  # and nothing is reported


def test_trainings_in_a_task_are_trials_of_their_own(fit, report, search):
    callback = pickle.loads(pickle.dumps(report()))
    _, first = fit(callback)
    fit(callback)
    np.testing.assert_allclose(next(iter(search.losses.values())), first)
    assert [len(losses) for losses in search.losses.values()] == [EPOCHS, EPOCHS]


def test_it_ends_when_the_search_says_so(fit, report, search):
    search.ends_after = 2
    _, logged = fit(report())
    assert len(search.only) == len(logged) == 2


@pytest.mark.parametrize("monitor", ["aux", 3])
def test_a_metric_that_is_not_logged_costs_one_warning(fit, report, monitor):
    losses = []
    with warnings.catch_warnings(record=True) as caught, instrument(losses.append):
        warnings.simplefilter("always")
        fit(report(monitor))
    (text,) = [str(w.message) for w in caught if "to report" in str(w.message)]
    assert repr(monitor) in text and "loss" in text and losses == []


ODD = [None, "text", (0.5, 0.1), [], {}, float("nan"), np.array([1.0, 2.0]), np.float32(0.5), True]


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_no_odd_log_fails_a_training(fit, report, odd, maximize):
    callback, losses = report("odd", maximize), []
    with warnings.catch_warnings(), instrument(losses.append):
        warnings.simplefilter("ignore")
        assert callback.report({"odd": odd}) and callback.report({}) and callback.report(None)
    assert all(type(loss) is float for loss in losses)
