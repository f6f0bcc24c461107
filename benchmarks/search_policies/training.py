"""Real grids, trained within seconds: validation losses of scikit-learn, xgboost and LightGBM.

The seconds of a step follow from the parameters, by a rule of thumb, so that grids repeat exactly.
Half of the grids are to tune rules on; the others check them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.ensemble import GradientBoostingClassifier, GradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.preprocessing import StandardScaler

from benchmarks.search_policies import late
from benchmarks.search_policies.epochs import Curve, Split, epochs, log_loss, squared
from benchmarks.search_policies.grids import Grid

Parameters = dict[str, Any]

#: Models of a grid.
MODELS = 64


def _split(X: Any, y: Any, *, rows: int = 1200) -> Split:
    """Return scaled data to train on and to validate on; regression targets have variance 1."""
    X, y = StandardScaler().fit_transform(X[:rows]), np.asarray(y[:rows])
    if y.dtype.kind == "f":
        y = (y - y.mean()) / y.std()
    split: Split = tuple(train_test_split(X, y, test_size=0.3, random_state=0))  # type: ignore[assignment]
    return split


def _made(seed: int, **more: Any) -> Split:
    return _split(*datasets.make_classification(800, random_state=seed, **more))


def _hastie() -> Split:
    X, y = datasets.make_hastie_10_2(900, random_state=6)
    return _split(X, (y > 0).astype(int))


DATA: dict[str, Callable[[], Any]] = {
    "digits": lambda: _split(*datasets.load_digits(return_X_y=True), rows=700),
    "few": lambda: _split(*datasets.load_digits(return_X_y=True), rows=300),
    "cancer": lambda: _split(*datasets.load_breast_cancer(return_X_y=True)),
    "wine": lambda: _split(*datasets.load_wine(return_X_y=True)),
    "diabetes": lambda: _split(*datasets.load_diabetes(return_X_y=True)),
    "friedman": lambda: _split(*datasets.make_friedman1(700, noise=1.0, random_state=1)),
    "friedman2": lambda: _split(*datasets.make_friedman2(600, noise=50.0, random_state=2)),
    "made": lambda: _made(3, n_features=30, n_informative=8, n_classes=4, flip_y=0.1),
    "noisy": lambda: _made(4, n_features=20, n_informative=5, n_classes=2, flip_y=0.25),
    "moons": lambda: _split(*datasets.make_moons(600, noise=0.25, random_state=5)),
    "hastie": _hastie,
    "chance": lambda: None,
    "parity": lambda: _split(*late.parity()),
    **{name: lambda make=make: make for name, make in late.ENVIRONMENTS.items()},
}


def _sgd(chance: np.random.Generator, data: Split, steps: int) -> tuple[Curve, float]:
    given: Parameters = {
        "alpha": 10 ** chance.uniform(-6, -0.5),
        "penalty": str(chance.choice(["l2", "l1", "elasticnet"])),
        "learning_rate": str(chance.choice(["constant", "invscaling", "adaptive", "optimal"])),
        "eta0": 10 ** chance.uniform(-4, 0),
        "power_t": chance.uniform(0.1, 0.5),
        "average": bool(chance.random() < 0.25),
        "random_state": 0,
    }
    if data[2].dtype.kind == "f":
        if given["learning_rate"] == "optimal":
            given["learning_rate"] = "constant"
        given["eta0"] *= 0.1
        return epochs(SGDRegressor(**given), data, steps), 1.0
    return epochs(SGDClassifier(loss="log_loss", **given), data, steps), 1.0


def _mlp(chance: np.random.Generator, data: Split, steps: int) -> tuple[Curve, float]:
    units = int(2 ** chance.uniform(2, 6))
    layers = (units,) * int(chance.integers(1, 3))
    batch = int(2 ** chance.integers(4, 8))
    made = MLPRegressor if data[2].dtype.kind == "f" else MLPClassifier
    model = made(
        hidden_layer_sizes=layers,
        solver=str(chance.choice(["adam", "sgd"])),
        activation=str(chance.choice(["relu", "tanh"])),
        learning_rate_init=10 ** chance.uniform(-4, -0.5),
        alpha=10 ** chance.uniform(-6, 0),
        momentum=chance.uniform(0, 0.95),
        batch_size=batch,
        random_state=0,
    )
    return epochs(model, data, steps), (20 + len(layers) * units) * (1 + 32 / batch)


def _boost(chance: np.random.Generator, data: Split, steps: int) -> tuple[Curve, float]:
    X, Xv, y, yv = data
    depth, part = int(chance.integers(1, 6)), chance.uniform(0.3, 1)
    regression = y.dtype.kind == "f"
    made = GradientBoostingRegressor if regression else GradientBoostingClassifier
    model = made(
        n_estimators=steps,
        learning_rate=10 ** chance.uniform(-2, 0),
        max_depth=depth,
        subsample=part,
        max_features=chance.uniform(0.2, 1),
        min_samples_leaf=int(2 ** chance.uniform(0, 5)),
        random_state=0,
    ).fit(X, y)
    if regression:
        losses = [squared(yv, found) for found in model.staged_predict(Xv)]
    else:
        losses = [log_loss(yv, found) for found in model.staged_predict_proba(Xv)]
    return losses, (1 + depth) * part


def _xgboost(chance: np.random.Generator, data: Split, steps: int) -> tuple[Curve, float]:
    import xgboost

    X, Xv, y, yv = data
    classes = len(np.unique(y))
    goal: Parameters = {"objective": "binary:logistic", "eval_metric": "logloss"}
    if y.dtype.kind == "f":
        goal = {"objective": "reg:squarederror", "eval_metric": "rmse"}
    elif classes > 2:
        goal = {"objective": "multi:softprob", "eval_metric": "mlogloss", "num_class": classes}
    depth, part = int(chance.integers(1, 8)), chance.uniform(0.3, 1)
    given = {
        "eta": 10 ** chance.uniform(-2, 0),
        "max_depth": depth,
        "subsample": part,
        "colsample_bytree": chance.uniform(0.3, 1),
        "lambda": 10 ** chance.uniform(-2, 1.5),
        "min_child_weight": 10 ** chance.uniform(-1, 1.5),
    }
    found: dict[str, dict[str, Curve]] = {}
    valid = xgboost.DMatrix(Xv, yv)
    xgboost.train(
        {**goal, **given, "nthread": 1, "verbosity": 0, "seed": 0},
        xgboost.DMatrix(X, y),
        steps,
        evals=[(valid, "valid")],
        evals_result=found,
        verbose_eval=False,
    )
    return next(iter(found["valid"].values())), (1 + depth) * part


def _lightgbm(chance: np.random.Generator, data: Split, steps: int) -> tuple[Curve, float]:
    import lightgbm

    X, Xv, y, yv = data
    classes = len(np.unique(y))
    goal: Parameters = {"objective": "binary", "metric": "binary_logloss"}
    if y.dtype.kind == "f":
        goal = {"objective": "regression", "metric": "l2"}
    elif classes > 2:
        goal = {"objective": "multiclass", "metric": "multi_logloss", "num_class": classes}
    leaves = int(2 ** chance.uniform(1, 5.5))
    given = {
        "learning_rate": 10 ** chance.uniform(-2, -0.1),
        "num_leaves": leaves,
        "bagging_fraction": chance.uniform(0.3, 1),
        "bagging_freq": 1,
        "feature_fraction": chance.uniform(0.3, 1),
        "lambda_l2": 10 ** chance.uniform(-2, 1.5),
        "min_data_in_leaf": int(2 ** chance.uniform(1, 6)),
    }
    found: dict[str, dict[str, Curve]] = {}
    train = lightgbm.Dataset(X, y)
    lightgbm.train(
        {**goal, **given, "num_threads": 1, "verbosity": -1, "seed": 0, "deterministic": True},
        train,
        steps,
        valid_sets=[train.create_valid(Xv, yv)],
        valid_names=["valid"],
        callbacks=[lightgbm.record_evaluation(found)],
    )
    return next(iter(found["valid"].values())), 4.0 + leaves


KINDS: Mapping[str, Callable[[np.random.Generator, Any, int], tuple[Curve, float]]] = {
    "sgd": _sgd,
    "mlp": _mlp,
    "boost": _boost,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "rewards": late.rewards,
    "schedule": late.schedule,
    "plateau": late.plateau,
    "fold": late.fold,
}
#: Grids on which the rules of searches were tuned, and grids which only check them: number of
#: steps by name, which is the kind of the models and their data.
TUNED = {
    "sgd-made": 40,
    "sgd-diabetes": 40,
    "mlp-digits": 40,
    "mlp-friedman": 40,
    "boost-noisy": 50,
    "boost-friedman2": 50,
    "xgboost-wine": 50,
    "lightgbm-hastie": 50,
}
HELD_OUT = {
    "sgd-cancer": 40,
    "sgd-friedman": 40,
    "mlp-moons": 40,
    "mlp-diabetes": 40,
    "boost-hastie": 50,
    "boost-diabetes": 50,
    "xgboost-made": 50,
    "lightgbm-cancer": 50,
}
#: And those whose first losses mislead.
LATE = {
    "rewards-cartpole": 50,
    "rewards-corridor": 50,
    "schedule-few": 40,
    "schedule-noisy": 40,
    "plateau-chance": 50,
    "plateau-parity": 60,
    "fold-cancer": 40,
    "fold-friedman": 50,
}
TRAINED = {**TUNED, **HELD_OUT, **LATE}


def trained(names: Mapping[str, int] = TRAINED, *, models: int = MODELS) -> Iterator[Grid]:
    """Train grids of `models` each. Those of a library that is not installed are left out."""
    for name, steps in names.items():
        kind, of = name.split("-")
        data = DATA[of]()
        losses, seconds = [], []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                warnings.simplefilter("ignore", RuntimeWarning)  # of models that diverge
                for number in range(models):
                    chance = np.random.default_rng([number, *name.encode()])
                    curve, cost = KINDS[kind](chance, data, steps)
                    losses.append(curve)
                    seconds.append(cost)
        except ImportError:
            continue
        yield Grid.of(name, losses, seconds)
