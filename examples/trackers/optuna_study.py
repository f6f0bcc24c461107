"""A search as an Optuna study, which optuna-dashboard shows while it runs.

::

    study = optuna.create_study(study_name="grid", storage="sqlite:///grid.db")
    rates = optuna.distributions.FloatDistribution(1e-6, 1, log=True)
    slaq.search("grid", callbacks=[OptunaStudy(study, {"rate": rates})])

Then ``optuna-dashboard sqlite:///grid.db``. The study only shows the models: it chooses none.
"""

from __future__ import annotations

import math
from typing import Any

import optuna
from optuna.trial import TrialState

#: States of a model that has no final value; a model that was pruned has its last one.
STATES = {"done": TrialState.COMPLETE, "pruned": TrialState.PRUNED}


class OptunaStudy:
    """Trials of a study, with the `distributions` of the parameters to be shown."""

    def __init__(
        self, study: optuna.Study, distributions: dict[str, optuna.distributions.BaseDistribution]
    ) -> None:
        self.study, self.distributions = study, distributions
        self.trials: dict[str, optuna.Trial] = {}  # of models that train

    def __call__(self, event: dict[str, Any]) -> None:
        model = event["model"]
        if event["event"] == "begin":
            known = [t for t in self.study.trials if t.user_attrs.get("model") == model]
            if any(not t.state.is_finished() for t in known):  # of a program that has gone
                self.trials[model] = optuna.Trial(self.study, known[-1]._trial_id)
            elif not known:
                params = {name: event["params"][name] for name in self.distributions}
                self.study.enqueue_trial(params, {"key": str(event["key"]), "model": model})
                self.trials[model] = self.study.ask(self.distributions)
        elif model not in self.trials:
            return  # it begins again after its end, which a study keeps
        elif event["event"] == "report":
            self.trials[model].report(event["loss"], event["step"])
        elif event["event"] == "end":
            state = STATES.get(event["state"], TrialState.FAIL)
            if math.isnan(event["loss"]):  # which a study refuses
                state = TrialState.FAIL
            value = event["loss"] if state == TrialState.COMPLETE else None
            self.study.tell(self.trials.pop(model), value, state)
