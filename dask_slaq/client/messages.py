"""What the scheduler tells the blocks of a client: that they stop, and what is wrong in them."""

from __future__ import annotations

import functools
import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

from dask_slaq.core.settings import BLOCKED, OUTSIDE, SILENT, STOP

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)


class Listener(Protocol):
    """Block that is told what the scheduler has to say to it."""

    name: str
    _settings: dict[str, Any]

    @property
    def is_open(self) -> bool:
        """Whether it was entered and not left."""

    def _ask_to_stop(self) -> None:
        """Let the next report raise `StopTraining`."""


#: Methods of a job by the messages of the scheduler that they are called for.
HEARD = {STOP: "_ask_to_stop", OUTSIDE: "_warn_of_threads", BLOCKED: "_warn_of_limits"}

# Jobs in their blocks by run, for each client.
_running: WeakKeyDictionary[Client, WeakValueDictionary[str, Listener]] = WeakKeyDictionary()


def listen(client: Client, run: str, job: Listener) -> None:
    """Tell the job what the scheduler has to say to this `run` of its block."""
    jobs = _running.get(client)
    if jobs is None:
        jobs = _running[client] = WeakValueDictionary()
        for message, method in HEARD.items():
            client._stream_handlers[message] = functools.partial(_tell_block, jobs, method)  # type: ignore[assignment]  # narrow
        client._stream_handlers[SILENT] = warn_of_silence
    jobs[run] = job


def find(client: Client, name: str) -> Listener | None:
    """Return the job of this name in whose block `client` is now, or None."""
    jobs = list(_running.get(client, {}).values())
    return next((job for job in jobs if job.name == name and job.is_open), None)


def _tell_block(
    jobs: WeakValueDictionary[str, Listener], method: str, run: str, **about: str
) -> None:
    if (job := jobs.get(run)) is not None:
        getattr(job, method)(**about)


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
    "shared": "search %(job)r: a model changes an argument (%(tasks)r) that is one object for all "
    "models on its worker, which take turns: copy it in the function, by copy.deepcopy or "
    "sklearn.base.clone, or let none wait (max_waiting=0)",
    "metric": "search %(job)r: %(tasks)s. Its models ran as under plain Dask: name the loss by "
    "metric= of the search",
    "metrics": "search %(job)r: its models are compared by different losses, %(tasks)s, the first "
    "metrics of their first reports: name one by metric= of the search",
    "several": "search %(job)r: a task %(tasks)r has reported more than twice its %(n)s steps: if "
    "it trains several models, they count as one, which ends with the last loss. Train one per "
    "task (as many partitions as models, Parallel(batch_size=1)), or if it is one, raise steps=",
    "group": "search %(job)r: its models have no parameter %(tasks)s: they are compared with all",
    "groups": "search %(job)r: the value of %(tasks)r tells which models were pruned. If it is a "
    "fold or a data set, on which losses differ, pass group=%(tasks)r: models are then compared "
    "with those of the same value only, and parameters are pruned in all folds or in none",
    "scores": "search %(job)r: the loss of every model only rose: if it is a score, open the "
    "search with maximize=True",
    "job": "job %(job)r: its tasks %(tasks)r call dask_slaq.report, which is for the tasks of a "
    "search: open the block with slaq.search instead of slaq.job if each task trains a model of "
    "its own, or pass job.reporter() to the tasks of one training",
}


#: What was advised about tasks that do not report, by search, of the last ones.
_advised: OrderedDict[object, set[str]] = OrderedDict()


def warn_of_silence(why: Any = "", run: Any = None, **about: Any) -> None:
    """Warn of what the scheduler has found in the block `run` of a search or job of this client.

    A block of many kinds of tasks has one warning that they do not report, or one per remedy.
    """
    cause = CAUSES.get(why)
    if cause is not None:
        name = str(about.get("tasks", ""))
        remedy = next((text for part, text in REMEDIES.items() if part in name), OTHERWISE)
        if why == "silent":
            before = _advised.setdefault(str(run), set())
            if remedy in before or (before and remedy is OTHERWISE):
                return
            before.add(remedy)
            while len(_advised) > 100:
                _advised.popitem(last=False)
        about = {"n": "", "job": "", **about, "tasks": name, "remedy": remedy}
        logger.warning("%s", cause % about)
