"""An Optuna study on Dask, one task per trial: the promising trials get the threads first.

Run it with ``python examples/optuna_search.py``. Nothing is pruned: a trial that asks whether it
should be waits while others are predicted to end better, and goes on later.
"""

from __future__ import annotations

import optuna
from distributed import Client, LocalCluster, wait
from optuna_integration import DaskStorage
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

TRIALS, STEPS = 12, 15


def objective(trial: optuna.Trial) -> float:
    X, y = load_digits(return_X_y=True)
    X, X_valid, y, y_valid = train_test_split(X / 16, y, random_state=0)
    model = SGDClassifier(
        loss="log_loss",
        learning_rate="constant",
        eta0=trial.suggest_float("eta0", 1e-5, 1.0, log=True),
        alpha=trial.suggest_float("alpha", 1e-6, 1e-1, log=True),
        random_state=0,
    )
    for step in range(STEPS):
        model.partial_fit(X, y, classes=range(10))
        loss = log_loss(y_valid, model.predict_proba(X_valid), labels=range(10))
        trial.report(loss, step)
        if trial.should_prune():  # waits here while other trials gain more
            raise optuna.TrialPruned
    return loss


def run_trial(seed: int, study: optuna.Study) -> None:
    # The study is pickled into every task, and its sampler with it. With one seed, all of them
    # would draw the same parameters.
    study.sampler = optuna.samplers.RandomSampler(seed=seed)
    study.optimize(objective, n_trials=1)


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin())
        study = optuna.create_study(
            storage=DaskStorage(client=client),
            pruner=slaq.optuna.Pruner(),
        )
        with slaq.search("digits", steps=STEPS) as search:
            runs = client.map(run_trial, range(TRIALS), study=study, pure=False)
            wait(runs)
            table = search.results()
        different = len(table.drop_duplicates(["params_eta0", "params_alpha"]))
        done = (table["state"] == "done").sum()
        print(f"{done} trials of {different} models, {table['iteration'].sum()} reports")
        print(f"best: loss {study.best_value:.3f} with {study.best_params}")


if __name__ == "__main__":
    main()
