"""Dask's task stream, with tasks in the colors of their jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bokeh.models import TapTool
from distributed.dashboard.components.scheduler import TaskStream
from distributed.diagnostics.task_stream import TaskStreamPlugin

from dask_slaq.scheduler.board.colors import UNOWNED, color_of

if TYPE_CHECKING:
    from distributed import Scheduler

#: Prefixes of the names of rectangles that show no computation.
NOT_COMPUTE = ("transfer-", "disk-read-", "disk-write-", "deserialize-")


class JobTaskStreamPlugin(TaskStreamPlugin):  # type: ignore[misc]
    """Records which job owns each task of the stream."""

    name = "slaq-task-stream"

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Record a task that ended."""
        before = self.index
        super().transition(key, start, finish, *args, **kwargs)
        if self.index > before:
            ts = self.scheduler.tasks.get(key)
            annotations = (ts.annotations or {}) if ts is not None else {}
            self.buffer[-1]["slaq_job"] = annotations.get("slaq_job")

    def rectangles(self, istart: int, **kwargs: Any) -> dict[str, list[Any]]:
        """Return the rectangles of the stream, in the colors of the jobs."""
        job_of: dict[Any, Any] = {
            message["key"]: message.get("slaq_job") for message in self.buffer
        }
        found: dict[str, list[Any]] = super().rectangles(istart, **kwargs)
        for i, (key, name) in enumerate(zip(found["key"], found["name"], strict=True)):
            if not name.startswith(NOT_COMPUTE):
                job = job_of.get(key)
                if isinstance(job, str):
                    found["color"][i] = color_of(self.scheduler, job)
                    found["name"][i] = f"{job}: {name}"
                else:
                    found["color"][i] = UNOWNED
        return found


class JobTaskStream(TaskStream):  # type: ignore[misc]
    """Task stream whose colors are those of the jobs."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        if JobTaskStreamPlugin.name not in scheduler.plugins:
            scheduler.add_plugin(JobTaskStreamPlugin(scheduler))
        super().__init__(scheduler, n_rectangles=500, clear_interval="20s", **kwargs)
        plugin: Any = scheduler.plugins[JobTaskStreamPlugin.name]
        self.plugin = plugin
        self.index = max(0, plugin.index - self.n_rectangles)
        self.root.title.text = "Tasks by job"
        # It would open a profile of the name, to which the job was added.
        self.root.tools = [tool for tool in self.root.tools if not isinstance(tool, TapTool)]

    def update(self) -> None:
        """Read the newest tasks. Without any, the axis would show the times of Dask's dummy."""
        super().update()
        self.root.xaxis.visible = list(self.source.data["key"]) not in ([], ["start"])
