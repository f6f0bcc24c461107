"""One TensorBoard run per model of a search: losses by step, and parameters in the HPARAMS tab.

``slaq.search("grid", callbacks=[TensorBoardRuns("runs/grid")])``, then ``tensorboard --logdir
runs``. It needs tensorboardX; ``torch.utils.tensorboard`` has the same class.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter


class TensorBoardRuns:
    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.writers: dict[str, SummaryWriter] = {}  # of models that train

    def __call__(self, event: dict[str, Any]) -> None:
        model = event["model"]
        if event["event"] == "begin":
            shown = ",".join(f"{name}={value}" for name, value in event["params"].items())
            name = f"{model[:8]} {shown}"[:80].replace("/", "_")
            self.writers[model] = SummaryWriter(str(self.folder / name))
        elif event["event"] == "report":
            for name, value in {"loss": event["loss"], **event["metrics"]}.items():
                self.writers[model].add_scalar(name, value, event["step"], event["time"])
        elif event["event"] == "end":
            writer = self.writers.pop(model)
            plain = {
                name: value if isinstance(value, bool | int | float | str) else str(value)
                for name, value in event["params"].items()
            }
            # In a folder of its own: its file could replace that of the curve.
            writer.add_hparams(plain, {"final_loss": event["loss"]}, name="hparams")
            writer.add_text("state", event["state"])
            writer.close()
