"""An Optuna study, one task per trial: its best trial is done sooner than under plain Dask.

Run it with ``python examples/optuna_search.py``; it needs ``pip install dask-slaq[optuna]``.
Nothing is pruned: a trial that asks whether it should be waits while others are predicted to end
better, and goes on later. Under the policy ``none`` no trial waits.
"""

from __future__ import annotations

import warnings
from copy import copy
from datetime import datetime
from time import sleep

from distributed import Client, LocalCluster, wait
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

try:
    import optuna
    from optuna_integration import DaskStorage
except ModuleNotFoundError as missing:
    raise SystemExit(f"{missing}: pip install 'dask-slaq[optuna]'") from None

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
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
        sleep(0.04)  # as for a larger model
        model.partial_fit(X, y, classes=range(10))
        loss = log_loss(y_valid, model.predict_proba(X_valid), labels=range(10))
        trial.report(loss, step)
        if trial.should_prune():  # waits here while other trials gain more
            raise optuna.TrialPruned
    return loss


def run_trial(seed: int, study: optuna.Study) -> None:
    # Each task has its own study and sampler. With one seed, all of them would draw the same
    # parameters.
    study = copy(study)
    study.sampler = optuna.samplers.RandomSampler(seed=seed)
    study.optimize(objective, n_trials=1)


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    for policy, way in (("none", "plain Dask"), ("first-to-target", "search")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy))
            storage, pruner = DaskStorage(client=client), slaq.optuna.Pruner()
            study, begin = optuna.create_study(storage=storage, pruner=pruner), datetime.now()
            with slaq.search("digits", steps=STEPS) as search:
                wait(client.map(run_trial, range(TRIALS), study=study, pure=False))
            found = search.results().drop_duplicates(["params_eta0", "params_alpha"])
            ends = [trial.datetime_complete - begin for trial in study.trials]
            best = study.best_trial
            print(
                f"{way}: {len(found)} different trials, {found['iteration'].sum()} reports, ",
                end="",
            )
            print(
                f"best (loss {best.value:.3f}) after {ends[best.number].total_seconds():.1f} s, ",
                end="",
            )
            print(f"all after {max(ends).total_seconds():.1f} s")


if __name__ == "__main__":
    main()
