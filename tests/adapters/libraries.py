"""Libraries that train a model in one task, each with a callback of ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from dask_slaq.adapters import instrument

ROUNDS = 8


@contextmanager
def reported() -> Iterator[list[float]]:
    """The losses that fits in this block report."""
    losses: list[float] = []
    with instrument(losses.append):
        yield losses


class Library:
    """Trains a classifier on 150 rows, evaluates all and the other 50, and keeps the history."""

    #: Names of the two evaluation sets.
    sets: tuple[str, str]
    logloss: str
    auc: str

    def train(self, data: Any, *callbacks: Any, **how: Any) -> Any: ...

    def rounds(self, model: Any) -> int: ...


class Xgboost(Library):
    sets, logloss, auc = ("all", "valid"), "logloss", "auc"

    def __init__(self) -> None:
        self.library = pytest.importorskip("xgboost")
        from dask_slaq.adapters import xgboost

        self.module = xgboost

    def train(self, data, *callbacks, evaluate=True, model=None, rate=0.3, rounds=ROUNDS):
        x, y = data
        all_rows, train, valid = (
            self.library.DMatrix(x[rows], y[rows])
            for rows in (slice(None), slice(150), slice(150, None))
        )
        self.history: dict[str, Any] = {}
        return self.library.train(
            {
                "objective": "binary:logistic",
                "eval_metric": ["auc", "logloss"],
                "learning_rate": rate,
                "nthread": 1,
                "max_depth": 2,
            },
            train,
            rounds,
            evals=[(all_rows, "all"), (valid, "valid")] if evaluate else [],
            evals_result=self.history,
            callbacks=list(callbacks),
            verbose_eval=False,
            xgb_model=model,
        )

    def rounds(self, model):
        return model.num_boosted_rounds()


class Lightgbm(Library):
    sets, logloss, auc = ("all", "valid"), "binary_logloss", "auc"

    def __init__(self) -> None:
        self.library = pytest.importorskip("lightgbm")
        from dask_slaq.adapters import lightgbm

        self.module = lightgbm

    def train(self, data, *callbacks, evaluate=True, model=None, rate=0.3, **how):
        x, y = data
        train = self.library.Dataset(x[:150], y[:150], free_raw_data=False)
        sets = [train.create_valid(x, y), train.create_valid(x[150:], y[150:])]
        self.history: dict[str, Any] = {}
        return self.library.train(
            {
                "objective": "binary",
                "metric": ["auc", "binary_logloss"],
                "learning_rate": rate,
                "num_threads": 1,
                "verbose": -1,
            },
            train,
            valid_sets=sets if evaluate else None,
            valid_names=["all", "valid"] if evaluate else None,
            callbacks=[self.library.record_evaluation(self.history), *callbacks],
            keep_training_booster=True,
            **{"num_boost_round": ROUNDS, "init_model": model, **how},
        )

    def rounds(self, model):
        return model.num_trees()


class Catboost(Library):
    sets, logloss, auc = ("validation_0", "validation_1"), "Logloss", "AUC"

    def __init__(self) -> None:
        self.library = pytest.importorskip("catboost")
        from dask_slaq.adapters import catboost

        self.module = catboost

    def train(self, data, *callbacks, evaluate=True, model=None, rate=0.3, **settings):
        x, y = data
        classifier = self.library.CatBoostClassifier(
            iterations=ROUNDS,
            depth=2,
            learning_rate=rate,
            custom_metric=["AUC"],
            thread_count=1,
            verbose=0,
            allow_writing_files=False,
            use_best_model=False,
            **settings,
        )
        sets = [(x, y), (x[150:], y[150:])] if evaluate else None
        classifier.fit(
            x[:150], y[:150], eval_set=sets, callbacks=list(callbacks) or None, init_model=model
        )
        self.history = classifier.evals_result_
        return classifier

    def rounds(self, model):
        return model.tree_count_


def objective(trial: Any, steps: int = ROUNDS) -> float:
    """Of an Optuna study: its trials fall towards their only parameter."""
    import optuna

    x = trial.suggest_float("x", 0, 1)
    for step in range(steps):
        value = x + 1 / (step + 1)
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


def fit_lightning(data: Any, folder: Any, *callbacks: Any, rate: float = 0.1) -> Any:
    """Train for three epochs of four batches; the module has `seen` the loss of each batch."""
    torch = pytest.importorskip("torch")
    lightning = pytest.importorskip("lightning.pytorch")

    class Line(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(data[0].shape[1], 1)
            self.seen = []

        def training_step(self, batch, index):
            loss = torch.nn.functional.mse_loss(self.line(batch[0]), batch[1])
            self.seen.append(float(loss.detach()))
            self.log("step_loss", loss)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=rate)

    torch.manual_seed(0)
    module = Line()
    rows = torch.utils.data.TensorDataset(*map(torch.from_numpy, data))
    lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
        callbacks=list(callbacks),
    ).fit(module, torch.utils.data.DataLoader(rows, batch_size=len(data[0]) // 4))
    return module
