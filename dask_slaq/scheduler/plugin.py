"""The scheduler plugin: Dask's hooks (`DaskHooks`) drive the engine, and its grants the pools.

The safety law is "never worse than plain Dask". Without jobs nothing has any effect. On any error
all held tasks are given back to Dask, and the error is logged once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import monotonic, time
from typing import Any

import numpy as np
from distributed import Scheduler
from tornado.ioloop import PeriodicCallback

from dask_slaq.config import settings
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import NoPlugin, NotAllowed
from dask_slaq.core.forecast import Predictor
from dask_slaq.core.policies import POLICIES, Policy
from dask_slaq.core.runtime import WorkerSpeeds
from dask_slaq.core.scaling_terms import IN_HOURS
from dask_slaq.core.settings import ALERT, ALERT_TOPIC, AUDIT_TOPIC
from dask_slaq.core.text import printable
from dask_slaq.plug_ins import (
    check_policy_name,
    is_class_path,
    policy_of,
    predictor_of,
    scaling_rule_of,
)
from dask_slaq.run_history import RunHistory
from dask_slaq.scheduler.board import add_pages
from dask_slaq.scheduler.by_value import ByValue
from dask_slaq.scheduler.current import Shown, current_plugin
from dask_slaq.scheduler.dask_hooks import DaskHooks
from dask_slaq.scheduler.event_loop import Throttle
from dask_slaq.scheduler.hooks import guarded, guarded_as, precede
from dask_slaq.scheduler.jobs.decisions import decide, observe_demand
from dask_slaq.scheduler.jobs.hindrances import look_for_hindrances
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.owners.identity import Identity, follow_connections
from dask_slaq.scheduler.pools import Pools, TaskPools
from dask_slaq.scheduler.registration import (
    forget_failure,
    others_to_replace,
    watch,
    with_settings_of_machine,
)
from dask_slaq.scheduler.requests import MOST_AUDITED_CHANGES, Messages
from dask_slaq.scheduler.scaling import Scaling, add_scaling
from dask_slaq.scheduler.trials import Searches
from dask_slaq.scheduler.views import add_metrics

logger = logging.getLogger(__name__)

#: Periodic checks of Dask's before which `SlaqPlugin._keep` runs.
CHECKS = ("idle-timeout", "no-workers-timeout")


def _policy_of(text: str) -> str | Policy:
    """Return a policy by its class path or added name; of ours, the name."""
    return text if text in POLICIES else policy_of(text, timely=True)


class SlaqPlugin(DaskHooks):
    """Quality-driven scheduling on a Dask scheduler.

    Settings that are not given come from the Dask configuration under ``slaq:``, which
    ``slaq.yaml`` documents.

    Parameters
    ----------
    policy : str
        Name of a policy, see `dask_slaq.core.policies.POLICIES`, or class path of one.
    epoch : str or float
        Time between two reallocations, as ``"1s"`` or in seconds.
    predictor : Predictor or str, optional
        Used instead of the built-in loss predictor: an object, or its class path.
    **other
        Other settings in ``slaq.yaml``, with underscores: ``lend=False``.

    Raises
    ------
    UnknownPolicy, InvalidSetting

    Examples
    --------
    >>> client.register_plugin(SlaqPlugin(policy="max-total", epoch="1s"))  # doctest: +SKIP
    """

    name = "slaq"
    _by_value: ByValue | None

    def __init__(
        self,
        policy: str | None = None,
        epoch: str | float | None = None,
        *,
        predictor: Predictor | str | Mapping[str, Any] | None = None,
        **other: Any,
    ) -> None:
        path = predictor if isinstance(predictor, str | Mapping) else None
        self.settings = settings(policy=policy, epoch=epoch, predictor=path, **other)
        self.machine = self.settings  # those of the machine on which the scheduler runs
        self.from_client = False
        self.predictor: Any = None if path is not None else predictor
        self.failed: str | None = None
        self.journal: Any = None  # `Journal`, if events are recorded
        self._started_on: Scheduler | None = None

    def __repr__(self) -> str:
        jobs = 0 if self._started_on is None else len(self.jobs.reports)
        doing = "failed" if self.failed else f"{jobs} job{'s' * (jobs != 1)}"
        return f"<SlaqPlugin {self.settings.policy}, {doing}>"

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Remember that a client sent this plugin."""
        self.__dict__.update(state)
        self.from_client = True

    async def start(self, scheduler: Scheduler) -> None:
        """Begin work on a scheduler.

        A scheduler that starts with preloads calls this twice; the second call does nothing.

        Raises
        ------
        InvalidSetting
            If another `SlaqPlugin` runs jobs there and has not failed, if the log cannot be
            written, or if ``slaq.identity`` is tls and the scheduler does not use TLS.
        NotAllowed
            If a client registers it, and ``slaq.lock`` is set on the scheduler's machine.
        """
        if self._started_on is scheduler and self.failed is None:
            return
        if self.from_client:
            self.settings, self.machine = with_settings_of_machine(scheduler, self.settings)
        others = others_to_replace(scheduler, SlaqPlugin)
        watch(scheduler, SlaqPlugin)
        chosen, earlier = self.settings, current_plugin(scheduler)
        before = None if earlier is None else earlier.identity
        identity = Identity(scheduler, chosen.identity, before)
        log = None
        if chosen.log:
            from dask_slaq.scheduler.event_log import Journal

            log = Journal(chosen.log, chosen.log_size, chosen.log_files)
        for other in others:
            other.stop()
        self.journal = log
        # Who changed what, also under earlier plugins of this scheduler.
        self.audited = deque(maxlen=MOST_AUDITED_CHANGES) if earlier is None else earlier.audited
        self.subscribers = set() if earlier is None else earlier.subscribers
        self.scheduler, self.identity = scheduler, identity
        self.run_history = RunHistory(chosen.run_history, lambda: self.engine)
        self.engine = self._make_engine()
        self.speeds = WorkerSpeeds()
        self.pools = Pools(
            scheduler,
            lend=chosen.lend,
            prefetch=chosen.prefetch,
            epoch=chosen.epoch,
            observe=self.engine.observe_task,
            fail=self.fall_back,
            enter=self.enter,
            follows_tasks=lambda: self.failed is None and self in scheduler.plugins.values(),
            log_length=chosen.bindings,
        )
        self.jobs = ScheduledJobs(
            scheduler,
            self.engine,
            self.pools,
            chosen,
            self.changed,
            self.run_history,
            identity.of_client,
            self.alert,
        )
        self.searches = Searches(self.jobs, self.end_job, lambda: self.is_active, self.enter)
        self.task_pools = TaskPools(
            self.pools,
            running=self.jobs.reports,
            pool_of_unowned=self.jobs.pool_of_unowned,
            is_contended=lambda: self.jobs.contended,
            claimed=self.searches.follower.claim,
            outside=self._submits_outside,
            is_of=self.jobs.submits,
            alike=identity.alike,
            enter=self.enter,
        )
        self.timer = PeriodicCallback(self.run_once, chosen.epoch * 1000)
        # A few jobs are decided on as they come, and a crowd together.
        self.soon = Throttle(self.reallocate, 4.0, least=0.020, burst=0.200)
        keep = chosen.keep_workers
        self.scaling = Scaling(self.pools, self.jobs.reports, keep, lambda: self.is_active)
        self._by_value = None
        if chosen.scaling is not None:
            self.scaling.by_value = self.by_value
        self.shown = Shown(chosen.epoch)
        self.messages = Messages(self)
        self.messages.register()
        follow_connections(scheduler)
        self._hook_in()
        precede(scheduler, CHECKS, self._keep)
        self._announce()
        forget_failure(scheduler)
        self._started_on = scheduler
        # Once it is registered: it must see the transitions that follow.
        asyncio.get_running_loop().call_soon(self._limit)
        for add in (add_scaling, add_metrics, add_pages):
            try:
                add(scheduler)
            except Exception:  # nothing that people look at may touch scheduling
                logger.exception("a page or metric of dask_slaq could not be added")

    def _make_engine(self) -> Engine:
        """Return a new engine, recorded if there is an event log."""
        chosen = self.settings
        predictor = self.predictor
        if predictor is None and chosen.predictor is not None:
            predictor = predictor_of(chosen.predictor, self.run_history.runs)
        engine = Engine(
            _policy_of(chosen.policy),
            epoch=chosen.epoch,
            normalizer=chosen.normalizer,
            runtime=chosen.runtime,
            max_slowdown=chosen.max_slowdown,
            floor=chosen.floor,
            predictor=predictor,
            owners={} if chosen.half_life and chosen.owners is None else chosen.owners,
            past_runs=self.run_history.runs,
        )
        if self.journal is None:
            return engine
        # Most clusters have no event log.
        from dask_slaq.core.recording import Recorder

        about = {"unix": time(), "numpy": np.__version__}
        recorder: Any = Recorder(engine, self.journal.write, monotonic(), **about)
        return recorder  # which stands for the engine

    @guarded
    def _limit(self) -> None:
        """Put the configured limits of labels into force."""
        if self.settings.limits and self.registered:
            self.pools.set_limits(self.settings.limits)

    def set_policy(self, policy: str) -> None:
        """Decide by another policy from now on.

        Raises
        ------
        UnknownPolicy
        NotAllowed
            If it is a class path that the settings of the plugin do not name.
        """
        known = (*POLICIES, self.settings.policy, self.machine.policy)
        if policy not in known and is_class_path("policy", check_policy_name(policy)):
            raise NotAllowed("a class path of a policy is taken from the settings alone")
        self.engine.set_policy(_policy_of(policy))
        self.settings = replace(self.settings, policy=policy)
        self._announce()
        self.changed()

    def _announce(self) -> None:
        """Tell clients that the scheduler has the plugin."""
        known = {"policy": self.settings.policy, "epoch": self.settings.epoch, "proof": True}
        self.scheduler.task_metadata["slaq"] = known
        self.scheduler.task_metadata[AUDIT_TOPIC] = True  # also when it is unregistered

    @property
    def by_value(self) -> ByValue:
        """What the number of workers is worth; made when it is first asked for."""
        if self._by_value is None:
            terms = self.settings.scaling or IN_HOURS
            rule = None if terms.rule is None else scaling_rule_of(terms.rule)
            about = self.scaling.usable, self.changed, self.speeds.factor, rule
            self._by_value = ByValue(terms, self.jobs, self.searches, *about)
        return self._by_value

    @property
    def registered(self) -> bool:
        """Whether the plugin is registered on the scheduler, under any name."""
        return self in self.scheduler.plugins.values()

    @property
    def is_active(self) -> bool:
        """Whether it is registered and has not failed."""
        return self.failed is None and self.registered

    def check_registered(self) -> None:
        """Raise `NoPlugin` if the plugin was unregistered. Dask has no hook for that."""
        if not self.registered:
            self.stop()
            raise NoPlugin("SlaqPlugin was unregistered from the scheduler: register it again")

    def stop(self) -> None:
        """Give all tasks back to plain Dask and end all jobs."""
        self._started_on = None
        self._rest()
        self.pools.hold(False)
        self.pools.set_limits({})
        self.pools.control.let_rest()
        self.jobs.accounts.stop()
        self.run_history.stop()
        self.jobs.close_all()
        self._close_journal()
        if self.messages.current:
            self.scheduler.task_metadata.pop("slaq", None)

    async def close(self) -> None:
        """Stop timers, close the event log and the run history when the scheduler closes."""
        self._rest()
        self.jobs.accounts.stop()
        await self.run_history.close()
        self._close_journal()

    def _rest(self, *also: Callable[[], object]) -> None:
        """Make no further decision, let all trials train on; `also` stop these.

        Never raises: this is what follows an error, which may be in any of these.
        """
        for stop in (self._stop_timers, self.searches.release_all, *also):
            try:
                stop()
            except Exception:
                logger.exception("a part of dask_slaq could not be stopped in order")

    def _stop_timers(self) -> None:
        self.timer.stop()
        self.soon.cancel()
        self.task_pools.cancel()

    def _close_journal(self) -> None:
        if self.journal is not None:
            self.journal.close()

    def fall_back(self, error: BaseException) -> None:
        """Leave every task to plain Dask from now on, and log `error` once."""
        if self.failed is not None:
            logger.debug("dask_slaq failed again", exc_info=error)
        else:
            self.failed = printable(f"{type(error).__name__}: {error}"[:1000])
            logger.error(
                "dask_slaq failed; every task is left to Dask's own scheduling until the plugin "
                "is registered again: %s",
                self.failed,
                exc_info=error,
            )
            # Not at once: the error may have come from inside a transition.
            asyncio.get_running_loop().call_soon(self.pools.give_up)
            alert = {"event": "fell back", "job": "", "owner": "", "message": self.failed}
            self._rest(self.shown.drop, self.messages.waiting.look, lambda: self.alert(alert))

    def alert(self, event: dict[str, Any]) -> None:
        """Tell an alert to all who follow them, after a failure too.

        It is also an event, which nobody here reads.
        """
        for client in self.subscribers:
            self.scheduler.client_send(client, {"op": ALERT, "alert": event})
        self.scheduler.log_event(ALERT_TOPIC, event)

    def began(self, name: str) -> None:
        """Make decisions from now on, because a job was opened."""
        if self.failed is not None:
            logger.warning("job %s runs under plain Dask: %s", name, self.failed)
        else:
            if not self.timer.is_running():
                self.timer.start()
            self.task_pools.adopt(name)
        self.changed()

    @guarded
    def run_once(self) -> None:
        """Run one epoch: check the pools, then reallocate."""
        if not self.registered:
            logger.warning("the plugin was unregistered: every job goes on under plain Dask")
            self.stop()
            return
        if self.pools.tick(0.5):
            logger.warning("tasks waited in a pool although slots were free; they run now")
        for end in self.pools.charges.take_ends():
            self.speeds.observe(*end)
        self.speeds.learn(monotonic())
        if self._by_value is not None:
            self._by_value.check()
        self.reallocate()
        self.jobs.record()
        look_for_hindrances(self.jobs)

    @guarded
    def reallocate(self) -> None:
        """Pass task counts to the engine, decide, and apply the grants to the pools."""
        with self.soon.work():
            for name in observe_demand(self.jobs):
                self.end_job(name)
            self.pools.hold(self.jobs.contended)
            decide(self.jobs, self.settings.reserve)
        self.shown.drop()
        self.messages.waiting.look()

    def end_job(self, name: str, outcome: str | None = None) -> None:
        """Forget the job `name`; its running tasks continue under plain Dask.

        The `outcome` is ``"done"``, ``"stopped"`` or ``"failed"``, and None if its client was lost.
        """
        if outcome == "done" and name in self.jobs.stopping:
            outcome = "stopped"  # by somebody, though its tasks have ended
        for part in (
            lambda: self.searches.end_model(name, outcome),
            lambda: self._keep_models(name),
            lambda: self.searches.end(name),
            lambda: self.jobs.remember(name),
            lambda: self.run_history.end(name),
            lambda: self.task_pools.ended(name, failed=outcome == "failed"),
            lambda: self.pools.remove(name, self.jobs.heir_of(name)),
            lambda: self.pools.remove(name),  # nothing is left of it, unless that has failed
            lambda: self.jobs.close(name, outcome),
            self.messages.waiting.look,
            self._end_all,
        ):
            self.enter(part)  # one that fails keeps no other from its end
        self.changed()

    def _keep_models(self, name: str) -> None:
        if (search := self.searches.running.get(name)) is not None:
            owner, trials = self.jobs.owner.get(name, ""), search.trials
            maximize = trials.settings.maximize
            self.run_history.keep_models(name, owner, trials.ranks(), maximize=maximize)

    def _end_all(self) -> None:
        """Stop what runs for jobs alone, after the last one."""
        if not self.jobs.reports:
            self.jobs.close_all()
            self._stop_timers()

    @guarded_as(always=True)
    def enter(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call what the event loop, or a part of several, has to do. Returns None if it fails."""
        return call(*args, **kwargs)

    @guarded_as(always=True)
    def changed(self) -> None:
        """Decide soon, because a job or worker came, went or changed."""
        self.shown.drop()
        self.pools.hold(self.failed is None and self.jobs.contended)
        if self.failed is None:
            self.soon.ask()
