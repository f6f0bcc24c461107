"""Reports of losses from inside tasks: yield points at which a model waits for its turn."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic
from types import FrameType
from typing import Any

from distributed import Reschedule, Worker, get_worker, secede
from distributed.protocol import pickle
from distributed.threadpoolexecutor import secede as leave_pool
from distributed.threadpoolexecutor import thread_state
from distributed.utils import sync

from dask_slaq.core.errors import StopTraining, TrialPruned
from dask_slaq.core.jobs.reports import (
    MOST_METRICS,
    NO_LOSS,
    as_metrics,
    as_step,
    is_usable,
)
from dask_slaq.core.settings import UNOWNED_TOPIC, shown
from dask_slaq.core.trials import (
    MOST_GROUP_CHARACTERS,
    TrialEvent,
    as_parameters,
    bounded,
    group_of,
)
from dask_slaq.worker.carrying import OWN_SECONDS
from dask_slaq.worker.states import (
    FILES,
    FROM,
    STATE,
    Leave,
    Mark,
    fetch,
    file_of,
    freeze,
    here,
    read,
    safe_folder,
)
from dask_slaq.worker.trial_agent import (
    ENDS,
    GROUP,
    LOOK_SECONDS,
    METRIC,
    TrialAgent,
    agent_of,
    annotation_of,
    run_of,
)
from dask_slaq.worker.trial_slot import SlotState, TrialSlot, parameters_of

logger = logging.getLogger(__name__)

#: Causes of which this process has warned.
_warned: set[Hashable] = set()
OUTSIDE = (
    "a task reports a loss, but belongs to no search that the scheduler knows: submit it, "
    "as a function and not as a coroutine, in a 'with dask_slaq.search(name)' block, on a "
    "scheduler that runs SlaqPlugin"
)


def in_trial() -> bool:
    """Return whether the running code is in a task of a search."""
    found = _task_here()
    return found is not None and run_of(*found) is not None


def job_of_task() -> str | None:
    """Return the name of the job of the task in which this code runs; None outside of any."""
    found = _task_here()
    name = None if found is None else annotation_of(*found, "slaq_job")
    return name if isinstance(name, str) else None


def report_trial(
    loss: Any,
    *,
    step: Any = None,
    trial: Hashable = None,
    state: Any = None,
    params: Callable[[], Mapping[str, Any]] | None = None,
) -> bool:
    """Report the loss of the running task's model, and wait while other models gain more.

    The loss is a number, or a mapping of metrics: the first one of the first report is the loss,
    and reports without it are dropped. One that is not finite only counts as an iteration. `step`
    is the number of the iteration, by default the next one, and `trial` distinguishes the models
    that one task trains one after the other. With a `state`, from which `resume` lets it go
    on, it may leave its worker. `params` returns the parameters of the model, by default the
    arguments of the task. Returns whether the code runs in a task; outside of a search nothing is
    reported, with one warning.

    Raises `NonFiniteLoss` if the loss is not a number, `InvalidSetting` if the step is not, and
    after the report `StopTraining` if the search was stopped, or `TrialPruned` if it gave this
    model up.
    """
    found = _task_here()
    if found is None:
        return False
    step = as_step(step)
    worker, key = found
    run = run_of(worker, key)
    named = "" if run is None else _name_of_loss(worker, key, step)
    metrics = as_metrics(loss, named)
    if not metrics:
        names = [shown(name) for name in list(loss)[: 1 + MOST_METRICS]]
        _warn_once((run, "metric"), NO_LOSS % (named, ", ".join(names)))
        if _is_new((run, *names)):
            worker.log_event(UNOWNED_TOPIC, {"key": key, "metric": named, "has": names})
        return True
    if run is None:
        job = job_of_task()
        if _warn_once(("outside", job), OUTSIDE) and job is not None:
            # The plugin, if there is one, tells the client of the job.
            worker.log_event(UNOWNED_TOPIC, {"key": key})
        return True
    agent = agent_of(worker)
    value, *_ = metrics.values()
    slot = agent.report(key, run, trial, value, step, dict(list(metrics.items())[1:]))
    if isinstance(loss, Mapping):
        slot.metric = slot.metric or next(iter(metrics))
    if slot.reports == 1:
        slot.unsent.params, slot.unsent.drawn = _parameters(worker, key, params), params is not None
        slot.unsent.group = _group(worker, key, slot.unsent.params)
    if (changed := agent.arguments.find_changed(run, key, slot.reports)) is not None:
        worker.log_event(UNOWNED_TOPIC, {"key": key, "changed": str(changed)})
    if not is_usable(value):
        _warn_once(run, f"a loss of {value} was dropped: only its iteration counts")
    if slot.iterations.repeated:
        _warn_once((run, "step"), "a step was not above the last one: it counts as the next one")
    pool = _pool_here()
    # A task that gave up its thread itself has none to give.
    has_left = pool is not None and slot.thread not in pool
    slot.pool, slot.state = pool, SlotState.LEFT if has_left else SlotState.TRAINS
    if state is None and here.loop is not None and here.loop[0] == this_run():
        state = here.loop[1]
    if state is not None:
        _offer(agent, slot, state)
    if agent.must_leave(slot, waits=False):
        _leave(agent, slot)
    if agent.must_wait(slot) and pool is not None and not has_left:
        if agent.must_leave(slot, waits=True):
            _leave(agent, slot)
        _wait(agent, slot)
    elif agent.keeper.must_keep(slot, waits=False):
        agent.keeper.keep(slot)
    elif monotonic() - slot.sent >= 0.01:  # seconds
        agent.send(slot, slot.says)
    slot.since, slot.checkpoint.offered = monotonic(), None
    _raise_verdict(agent, slot, value)
    return True


def waited() -> float:
    """Return the seconds that the running task has waited in its reports, on this worker.

    A model with a clock of its own, such as a `max_time`, adds them to its limit.

    Returns
    -------
    float
        Seconds. They are 0 in tasks that never wait, and outside of tasks, as in threads that a
        task has begun: nothing tells whose these are, so hand them what the task itself is told.

    Examples
    --------
    >>> waited()
    0.0
    """
    found = _task_here()
    if found is None or run_of(*found) is None:
        return 0.0
    slot = agent_of(found[0]).slots.get(found[1])
    return 0.0 if slot is None else slot.waited


def this_run() -> Hashable:
    """Return an identifier of this run of the task in this thread; None outside of a task."""
    found = _task_here()
    if found is None or found[1] is None:
        return None
    return found[1], getattr(thread_state, "start_time", None)


def _name_of_loss(worker: Worker, key: Any, step: int | None) -> str:
    """Return the name of the metric that is the loss of a task; empty while it has none.

    So it is again where a step begins a new curve.
    """
    given = annotation_of(worker, key, METRIC)
    if isinstance(given, str):
        return given
    slot = agent_of(worker).slots.get(key)
    return "" if slot is None or slot.iterations.goes_back(step) else slot.metric


def _parameters(
    worker: Worker, key: Any, given: Callable[[], Mapping[str, Any]] | None
) -> Mapping[str, Any]:
    """Return the parameters of a model as the scheduler is told them."""
    if given is not None:
        return bounded(as_parameters(given()))
    task = worker.state.tasks.get(key)
    return parameters_of(None if task is None else task.run_spec)


def _group(worker: Worker, key: Any, params: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the group and the candidate of a model; None if models have no groups."""
    if (part := part_of_cross_validation()) is not None:
        return part
    by = annotation_of(worker, key, GROUP)
    if by is None:
        return None
    try:
        return group_of(params, pickle.loads(by) if isinstance(by, bytes) else by)
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        _warn_once(what, f"a model has no group, and is compared with all: {what}")
        return None


def part_of_cross_validation() -> tuple[str, str] | None:
    """Return the fold and the candidate of a fit of scikit-learn's; None outside of one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "_fit_and_score":
            known = frame.f_locals
            fold, candidate = known.get("split_progress"), known.get("candidate_progress")
            if fold and candidate:
                params = repr(known.get("parameters"))
                return f"fold {fold[0]}", f"{candidate[0]}: {params}"[:MOST_GROUP_CHARACTERS]
        frame = frame.f_back
    return None


def resume() -> Any:
    """Return the last state of this task's model, from which it goes on.

    A task of a `search` begins with it, and reports states with `report`. So it goes on, on
    whichever worker, after it has left one or was lost with it.

    Returns
    -------
    object
        The state that was kept last; None if there is none, and outside of a search.

    See Also
    --------
    steps : a loop that keeps and resumes the state itself.
    unpause : lets a paused job go on.

    Examples
    --------
    >>> step, model = resume() or (0, None)
    >>> step
    0
    """
    here.asked = this_run()
    state = find_state()
    return None if isinstance(state, Mark) else state


def find_state() -> Any:
    """Return the last state that was kept in the task, by whatever kept it; None without."""
    found = _task_here()
    if found is None or found[1] is None:
        return None
    worker, key = found
    if run_of(worker, key) is None:
        return None
    note, folder = annotation_of(worker, key, STATE), annotation_of(worker, key, FILES)
    folder = safe_folder(folder)
    kept, is_shared, begin = None, False, monotonic()
    if folder:
        kept, before = read(file_of(folder, key)), annotation_of(worker, key, FROM)
        if kept is None and before is not None:
            kept = read(file_of(folder, before))
    elif note:
        with suppress(OSError, RuntimeError):  # as it closes: the task soon begins elsewhere
            kept, is_shared = sync(worker.loop, fetch, worker, list(note))
        if kept is None and worker.status not in ENDS:
            logger.warning("the state of %s was lost with its workers: it begins anew", key)
    state = None if kept is None else kept.thaw(copy=is_shared)
    agent_of(worker).resume(key, kept, monotonic() - begin)
    return state


def _offer(agent: TrialAgent, slot: TrialSlot, state: Any) -> None:
    """Take the state of a report, with which its model may leave."""
    states = slot.checkpoint
    states.offered = state
    if not states.resumes:
        if agent.is_cancelled(slot):
            return  # its task is gone, and what it resumed from is forgotten
        _warn_once(
            (slot.run, "resume"),
            "a model reports its state, but never asks for it: begin with slaq.resume()",
        )
    elif states.nbytes is None and not states.unfit:
        if _is_within("joblib"):
            states.unfit = True
            return
        begin = monotonic()
        try:
            nbytes = freeze(state, 0, slot.iterations, None, copy=False).nbytes
            states.note(nbytes, monotonic() - begin)
        except Exception as error:
            states.unfit = True
            logger.error(
                "the state of %s cannot be pickled: it stays on its worker (%r)", slot.key, error
            )


def _is_within(package: str) -> bool:
    """Return whether functions of a package call this one.

    joblib returns whatever is raised in a task as its result, and so the way off a worker as well.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] == package:
            return True
        frame = frame.f_back
    return False


def _leave(agent: TrialAgent, slot: TrialSlot, waited: float = 0.0) -> None:
    """Leave the worker, unless the state cannot be kept."""
    if agent.keeper.keep(slot, leaves=True):
        agent.send(slot, TrialEvent.KEEPS, waited)
        if slot.waits and agent.carrier.is_changed(slot.taken):
            # What it puts back as it ends is its own only while it has the thread.
            _take_thread(agent, slot, limit=5.0)
        slot.leave = Leave()
        raise slot.leave


def _wait(agent: TrialAgent, slot: TrialSlot) -> None:
    """Give up the thread until the trial may go on."""
    begin = monotonic()
    slot.state = SlotState.STOPS
    slot.taken = agent.carrier.take(slot.key, slot.taken)
    # Dask is told the first time. From then on it counts the task as long-running, and the
    # scheduler follows the messages of the trial.
    if slot.seceded:
        leave_pool()
    else:
        slot.seceded = True
        secede()
    agent.send(slot, TrialEvent.WAITS)
    agent.yield_thread(slot)
    if agent.keeper.must_keep(slot, waits=True):
        agent.keeper.keep(slot)
    with _not_profiled(agent.worker):
        while not agent.goes_on(slot):
            if agent.must_leave(slot, waits=True):
                _leave(agent, slot, monotonic() - begin)
            slot.may_go.wait(LOOK_SECONDS)
        if agent.must_leave(slot, waits=False):
            _leave(agent, slot, monotonic() - begin)
        agent.send(slot, TrialEvent.GOES, monotonic() - begin)
        _take_thread(agent, slot)
    slot.state = SlotState.TRAINS
    slot.waited += monotonic() - begin


def _take_thread(agent: TrialAgent, slot: TrialSlot, limit: float = math.inf) -> None:
    """Take a thread again, and what belongs to the model in its process."""
    agent.carrier.bring(slot.key, slot.taken, apart=not _rejoin(agent, slot, limit))


def _rejoin(agent: TrialAgent, slot: TrialSlot, limit: float) -> bool:
    """Take a thread again, as Dask's `rejoin` does, but not for ever where none may come.

    Returns whether it has one of the pool, after at most about `limit` seconds.
    """
    begin = monotonic()
    pool, event = thread_state.executor, threading.Event()
    mine = threading.current_thread(), event
    with pool._rejoin_lock:
        pool._rejoin_list.append(mine)
    with suppress(RuntimeError):  # which a pool raises that was shut down
        pool.submit(lambda: None)
    while not event.wait(LOOK_SECONDS):
        with pool._rejoin_lock:
            seconds = monotonic() - begin
            alone = seconds < OWN_SECONDS and agent.carrier.has_own(slot.taken)
            gives_up = pool._shutdown or seconds > limit or (agent.goes_apart(slot) and not alone)
            if mine in pool._rejoin_list and gives_up:
                pool._rejoin_list.remove(mine)
                return False
    thread_state.proceed = True
    return True


@contextmanager
def _not_profiled(worker: Worker) -> Iterator[None]:
    """Keep this thread from Dask's profiler, which looks at every stack a hundred times a second.

    Dozens of waiting trials would cost the worker a tenth of a core.
    """
    ident = threading.get_ident()
    with worker.active_threads_lock:
        key = worker.active_threads.pop(ident)
    try:
        yield
    finally:
        with worker.active_threads_lock:
            worker.active_threads[ident] = key


def _raise_verdict(agent: TrialAgent, slot: TrialSlot, loss: float) -> None:
    verdict = agent.verdict(slot)
    if not verdict and not agent.is_cancelled(slot):
        return
    if verdict or slot.unsent.losses:
        agent.send(slot, verdict or TrialEvent.REPORTS)
    if verdict:
        end: StopTraining
        if verdict is TrialEvent.STOPPED:
            end = StopTraining("the search was stopped: end the training loop")
        else:
            end = TrialPruned("the search gave this model up: end the training loop")
        end.loss, end.step = loss, slot.iterations.last
        raise end
    # Nobody waits for the task, so it ends. Should somebody want it again, it runs again.
    raise Reschedule


def _task_here() -> tuple[Worker, Any] | None:
    """Return the worker that runs this code in a task, and the key of the task, or None.

    The key is None on the event loop, where Dask does not tell which coroutine is running.
    """
    try:
        worker = get_worker()
    except ValueError:
        return None
    return worker, worker.active_threads.get(threading.get_ident())


def _pool_here() -> Collection[threading.Thread] | None:
    """Return the threads of the pool in which this code began; None if none can leave it."""
    executor = getattr(thread_state, "executor", None)
    return None if executor is None else executor._threads


def _warn_once(cause: Hashable, message: str) -> bool:
    """Log a warning the first time that a cause occurs. Returns whether it did."""
    if is_new := _is_new(cause):
        logger.warning(message)
    return is_new


def _is_new(cause: Hashable) -> bool:
    """Return whether a cause of a warning occurs for the first time, while there are few."""
    is_new = cause not in _warned and len(_warned) < 100
    if is_new:
        _warned.add(cause)
    return is_new
