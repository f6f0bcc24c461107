"""One MLflow run per model of a search: parameters, losses by step, how it ended.

``slaq.search("grid", callbacks=[MLflowRuns("grid")])``. The tracking server is that of
``MLFLOW_TRACKING_URI``, or `uri`.
"""

from __future__ import annotations

from typing import Any

from mlflow import MlflowClient

STATUS = {"done": "FINISHED", "failed": "FAILED"}  # others were cut short


class MLflowRuns:
    def __init__(self, experiment: str, uri: str | None = None) -> None:
        self.client = MlflowClient(uri)
        known = self.client.get_experiment_by_name(experiment)
        self.experiment = (
            known.experiment_id if known else self.client.create_experiment(experiment)
        )
        self.runs: dict[str, str] = {}  # identifiers of the runs of models

    def __call__(self, event: dict[str, Any]) -> None:
        model, milliseconds = event["model"], int(event["time"] * 1000)
        if event["event"] == "begin":
            known = self.client.search_runs([self.experiment], f"tags.model = '{model}'")
            if known:  # it begins again, or another program has reattached its search
                self.runs[model] = known[0].info.run_id
                self.client.update_run(self.runs[model], "RUNNING")
                return
            tags = {"search": event["job"], "key": str(event["key"]), "model": model}
            run = self.client.create_run(self.experiment, milliseconds, tags)
            self.runs[model] = run.info.run_id
            for name, value in event["params"].items():
                self.client.log_param(run.info.run_id, name, value)
        elif event["event"] == "report":
            for name, value in {"loss": event["loss"], **event["metrics"]}.items():
                run_id, step = self.runs[model], event["step"]
                self.client.log_metric(run_id, name, value, milliseconds, step)
        elif event["event"] == "end":
            run_id = self.runs.pop(model)
            self.client.set_tag(run_id, "state", event["state"])
            status = STATUS.get(event["state"], "KILLED")
            self.client.set_terminated(run_id, status, milliseconds)
