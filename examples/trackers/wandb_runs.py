"""One Weights & Biases run per model of a search, in a group with the name of the search.

``slaq.search("grid", callbacks=[WandbRuns("my-project")])``. With ``mode="offline"`` nothing is
sent: ``wandb sync`` does that later.
"""

from __future__ import annotations

from typing import Any

import wandb


class WandbRuns:
    def __init__(self, project: str, **options: Any) -> None:
        self.options = {"project": project, "reinit": "create_new", **options}  # of `wandb.init`
        self.runs: dict[str, wandb.Run] = {}  # of models that train

    def __call__(self, event: dict[str, Any]) -> None:
        model = event["model"]
        if event["event"] == "begin":
            config = {**event["params"], "key": str(event["key"])}
            about = {"id": model, "resume": "allow", "group": event["job"], "config": config}
            self.runs[model] = wandb.init(**about, **self.options)
        elif event["event"] == "report":
            metrics = {"loss": event["loss"], **event["metrics"]}
            self.runs[model].log(metrics, step=event["step"])
        elif event["event"] == "end":
            run = self.runs.pop(model)
            run.summary["state"] = event["state"]
            run.finish(exit_code=int(event["state"] == "failed"))
