"""Warnings about searches whose tasks do not report: what is wrong, and what to write instead."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Any

logger = logging.getLogger(__name__)

#: What to do about tasks whose name contains a text.
REMEDIES = {
    "optimize": "Optuna's trials report where they ask whether to be pruned. Create or load the "
    "study with pruner=slaq.optuna.Pruner(), call trial.report and trial.should_prune in the "
    "objective, and leave n_jobs at 1 in a task",
    "_fit_and_score": "scikit-learn's fits report by a callback. Set it on the estimator that "
    "iterates: estimator.set_callbacks(dask_slaq.adapters.sklearn.SlaqReport())",
    "_parallel_build_trees": "the trees of a forest make no steps that could be compared, so use "
    "slaq.job instead of slaq.search",
    "create_model": "a search of dask-ml, such as IncrementalSearchCV or HyperbandSearchCV, trains "
    "its models in turns of tasks, and reports them itself to a job: use slaq.job instead of "
    "slaq.search. Other functions that train must call dask_slaq.report(loss) after each step",
}
OTHERWISE = (
    "the function that trains must call dask_slaq.report(loss) after each step, in the thread of "
    "its task"
)
#: What is wrong, by a word of the scheduler.
CAUSES = {
    "silent": "search %(job)r: %(n)s tasks %(tasks)r ended without a report, so that nothing is "
    "known of their models, and they ran as under plain Dask: %(remedy)s",
    "empty": "search %(job)r: no task was submitted in its block. Tasks belong to the search in "
    "whose block they are submitted or computed, wherever they were built: call client.map, "
    "client.compute or dask.compute inside of it. What client.submit has submitted before is not "
    "submitted again while its future is held, unless with pure=False",
    "known": "search %(job)r: %(n)s tasks %(tasks)r were submitted before, outside of this search: "
    "they are not computed again, and nothing is known of their models. To train these "
    "in the search, pass pure=False to map or submit, or drop the futures of before",
    "equal": "search %(job)r: two models have equal parameters (%(tasks)s). If they come from "
    "Optuna, a sampler with a seed was pickled into every task, and draws the same in each: leave "
    "the seed out, or set study.sampler in the task, with another seed in each",
    "metric": "search %(job)r: %(tasks)s. Its models ran as under plain Dask: name the loss by "
    "metric= of the search",
    "metrics": "search %(job)r: its models are compared by different losses, %(tasks)s, the first "
    "metrics of their first reports: name one by metric= of the search",
    "job": "job %(job)r: its tasks %(tasks)r call dask_slaq.report, which is for the tasks of a "
    "search: open the block with slaq.search instead of slaq.job if each task trains a model of "
    "its own, or pass job.reporter() to the tasks of one training",
}


#: Searches of which it is remembered what was advised about tasks that do not report.
REMEMBERED = 100
_advised: OrderedDict[object, set[str]] = OrderedDict()


def warn_of_silence(why: Any = "", run: Any = None, **told: Any) -> None:
    """Warn of what the scheduler has found in the block `run` of a search or job of this client.

    A block of many kinds of tasks has one warning that they do not report, or one per remedy.
    """
    cause = CAUSES.get(why)
    if cause is not None:
        name = str(told.get("tasks", ""))
        remedy = next((text for part, text in REMEDIES.items() if part in name), OTHERWISE)
        if why == "silent":
            before = _advised.setdefault(str(run), set())
            if remedy in before or (before and remedy is OTHERWISE):
                return
            before.add(remedy)
            while len(_advised) > REMEMBERED:
                _advised.popitem(last=False)
        told = {"n": "", "job": "", **told, "tasks": name, "remedy": remedy}
        logger.warning("%s", cause % told)
