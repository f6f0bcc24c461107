"""Trials of one search: their reports, how they end, and which lead or are given up."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, repeat
from typing import Any

from dask_slaq.core.jobs.reports import MOST_METRICS, is_usable, next_iteration
from dask_slaq.core.search_settings import FEWEST_REPORTS, SearchSettings
from dask_slaq.core.trials.losses import FEWEST_POINTS, MOST_POINTS, MOST_POINTS_IN_ALL, TrialCurve
from dask_slaq.core.trials.past import PastModel, ranks_of
from dask_slaq.core.trials.pruning import Peers, stays_diverged, telling_parameter
from dask_slaq.core.trials.scores import Scores, choose_leads, final_of, rank_candidates
from dask_slaq.core.trials.trial import (
    BLOCKED_SECONDS,
    TURN_REPORTS,
    UNRANKED,
    FinalLoss,
    Trial,
    row_of,
    trial_of,
)
from dask_slaq.core.trials.trial_state import TrialState


class Trials:
    """Trials of one search.

    The first ones, a `sample`, make as many reports as a forecast needs. Of those of one task that
    have ended, the last are kept, `most_of_a_task` at most.
    """

    def __init__(
        self,
        settings: SearchSettings,
        clock: Callable[[], float] = lambda: math.nan,
        past: Iterable[PastModel] = (),
        *,
        sample: int = 8,
        most_of_a_task: int = 10_000,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._sample, self._most_of_a_task = sample, most_of_a_task
        self.scores = Scores(settings.goal, past)
        self.alive: dict[Hashable, Trial] = {}  # trials that have not ended, by task
        self.ended_of: dict[Hashable, dict[Hashable, Trial]] = {}  # by task and number
        # Trials that had ended and whose task runs again, by task and number.
        self._lost: dict[Hashable, dict[Hashable, Trial]] = {}
        self._best = math.inf
        self._longest = 0
        self._slowest = 0.0  # seconds that a trial has computed until its first report
        self._dropped = False  # whether these three count trials that were dropped since
        self._reported: dict[str, Trial] = {}
        self._count = 0
        self._turns: dict[str, int] = {}
        self.peers = defaultdict[str | None, Peers](Peers)  # by group
        self._looks = 0  # for a parameter by which they should be in groups
        self._parts: dict[str, dict[Hashable, Trial]] = {}  # of each candidate in groups

    def __len__(self) -> int:
        """Return the number of trials that have not ended."""
        return len(self.alive)

    def __iter__(self) -> Iterator[Trial]:
        yield from self.ended
        yield from self.alive.values()

    @property
    def settings(self) -> SearchSettings:
        """Settings of the search."""
        return self._settings

    @settings.setter
    def settings(self, settings: SearchSettings) -> None:
        if settings.goal != self._settings.goal:
            self.scores.set_goal(settings.goal)
            for trial in self.alive.values():
                trial.standing = UNRANKED
        self._settings = settings

    @property
    def first_turn(self) -> int:
        """Reports that a new trial makes before others may go first.

        The first trials show how they grow, and how far ranks hold. Other goals need forecasts.
        """
        return 1 if self.settings.goal == "best" and self._count > self._sample else FEWEST_REPORTS

    @property
    def ended(self) -> list[Trial]:
        """Trials that have ended, and whose results are not lost."""
        return [trial for some in self.ended_of.values() for trial in some.values()]

    @property
    def best(self) -> float:
        """Lowest loss reported so far."""
        self._compare_anew()
        return self._best

    @property
    def longest(self) -> int:
        """Most steps of a trial that ended."""
        self._compare_anew()
        return self._longest

    @property
    def best_final(self) -> float:
        """Lowest loss with which a trial ended; inf if none has."""
        self._compare_anew()
        return min(chain(*(peers.finals for peers in self.peers.values())), default=math.inf)

    def _compare_anew(self) -> None:
        """Forget what trials were compared with that were dropped: once for all of a cell."""
        if self._dropped:
            self._dropped = False
            left = [trial for trial in self if trial.losses.count]
            done = [trial for trial in left if trial.outcome == "done" and not trial.diverges]
            self._best = min((trial.losses.latest for trial in left), default=math.inf)
            for peers in self.peers.values():
                peers.finals.clear()
            for trial in done:
                self.peers[trial.group].end(trial.losses.latest)
            self._longest = max((trial.step for trial in done), default=0)

    @property
    def waiting(self) -> int:
        """Number of trials that wait."""
        return sum(trial.state.waits for trial in self.alive.values())

    @property
    def move(self) -> bool:
        """Whether all trials that have reported may leave their worker."""
        known = [trial.checkpoint.usable for trial in self.alive.values() if trial.reports]
        return bool(known) and all(known)

    @property
    def staying(self) -> int:
        """Number of trials that wait on a worker."""
        return sum(trial.state.stays for trial in self.alive.values())

    def at(
        self, key: Hashable, worker: str, number: Hashable = None, *, anew: bool = False
    ) -> Trial:
        """Return the trial of the task `key`, which begins if it is new, or runs again elsewhere.

        Another `number` than before begins another trial of the same task; `anew`, the same one.
        """
        trial = self.alive.get(key)
        if trial is not None and trial.worker == worker and trial.number == number:
            return self._begin_again(trial) if anew and trial.reports else trial
        if trial is not None and trial.state.migrates and trial.number == number:
            trial.worker = worker
            return trial
        if trial is not None:
            self.end(key, "done" if trial.worker == worker else "")
        self._count += 1
        self._forget_ended(key, number)
        trial = self.alive[key] = Trial(key, worker, str(self._count), number)
        trial.times.began = self._clock()
        trial.turn.first = self.first_turn
        trial.lost = self._lost.get(key, {}).pop(number, None)
        known = trial.known
        if math.isfinite(known) and self.settings.goal == "best":
            trial.forecast = FinalLoss(known, known, known)
            trial.score = known
        self.scores.add(trial.name, bounded=self._best >= 0)
        return trial

    def _begin_again(self, trial: Trial) -> Trial:
        """Return a trial without what it has reported, which no longer counts."""
        self.peers[trial.group].forget(trial)
        self.scores.predictor.remove(trial.name)
        self.scores.add(trial.name, bounded=self._best >= 0)
        self._reported.pop(trial.name, None)
        self._dropped = True
        trial.begin_again()
        return trial

    def _forget_ended(self, key: Hashable, number: Hashable) -> None:
        """Forget how a model ended that is trained again: its task was submitted anew."""
        if (some := self.ended_of.get(key)) is not None:
            some.pop(number, None)
            if not some:
                del self.ended_of[key]

    def report(
        self,
        trial: Trial,
        losses: Iterable[float],
        seconds: float,
        steps: Iterable[int | None] = (),
        others: Iterable[Mapping[str, float]] = (),
    ) -> list[int]:
        """Record losses of a trial after computing for `seconds`, but for those known before.

        `steps` are the iterations of the reports, as far as they are known, and `others` further
        metrics. A loss that is not usable only counts as an iteration. Returns how many iterations
        each report adds.
        """
        sign = -1.0 if self.settings.maximize else 1.0
        if not trial.times.computed:
            trial.times.began -= seconds
        trial.times.computed += seconds
        first, added = not trial.reports, []
        about = zip(chain(steps, repeat(None)), chain(others, repeat({})), strict=False)
        for loss, (step, metrics) in zip(losses, about, strict=False):
            if trial.again:  # its curve has these
                trial.again -= 1
                added.append(0)
                continue
            trial.reports += 1
            before, trial.step = trial.step, next_iteration(trial.step, step)
            added.append(trial.step - before)
            for name, value in metrics.items():
                if is_usable(value) and (name in trial.others or len(trial.others) < MOST_METRICS):
                    curve = trial.others.setdefault(name, TrialCurve())
                    curve.add(trial.step, value, self._most_points)
            if is_usable(loss):
                self._take(trial, sign * loss)
            else:
                trial.losses.missed += 1
        if first and trial.reports:
            trial.times.setup = trial.times.computed, trial.step
            if not trial.state.blocked and trial.times.computed == seconds:
                self._slowest = max(self._slowest, trial.times.computed)
        self._reported[trial.name] = trial
        return added

    def _take(self, trial: Trial, loss: float) -> None:
        """Record a usable loss of the present step of a trial."""
        trial.losses.add(trial.step, loss, self._most_points)
        self.scores.report(trial, loss)
        if loss < 0 <= self._best:  # zero bounds none of the models
            self.scores.predictor.unbound([each.name for each in self.alive.values()])
            self._judge_anew()
        self._best = min(self._best, loss)
        if self.settings.prunes:
            self.peers[trial.group].add(trial.step, loss)

    @property
    def _most_points(self) -> int:
        """Maximum number of points of a curve."""
        return max(min(MOST_POINTS, MOST_POINTS_IN_ALL // self._count), FEWEST_POINTS)

    def can_move(self, trial: Trial, nbytes: int, bandwidth: float) -> None:
        """Record that a trial has states of `nbytes`, which `bandwidth` bytes per second move.

        Its turns are so long that a move takes a tenth of the seconds of one.
        """
        trial.checkpoint.usable, trial.checkpoint.nbytes = True, nbytes
        step = max(trial.seconds_per_step, 1e-6)
        seconds = self._seconds_to_move(trial, bandwidth)
        trial.turn.span = max(TURN_REPORTS, math.ceil(10 * seconds / step))

    def is_dear(self, trial: Trial, bandwidth: float, part: float = 0.25) -> bool:
        """Return whether to move a trial takes more than this part of what it still computes."""
        seconds = self._seconds_to_move(trial, bandwidth)
        left = self.seconds_left(trial)
        if trial.setup:  # which is not computed again with each step
            left = self.steps_left(trial) * trial.pace
        return seconds > part * left

    @staticmethod
    def _seconds_to_move(trial: Trial, bandwidth: float) -> float:
        return 2 * trial.checkpoint.nbytes / bandwidth + trial.setup

    def find_stalled(self, now: float) -> list[Trial]:
        """Mark the trials that are blocked, or have stalled, at the time `now`.

        Returns those that have stalled, and had not before.
        """
        limit = self.settings.silent or math.inf
        return [trial for trial in self.alive.values() if trial.stalls(now, limit)]

    @property
    def patience(self) -> float:
        """Seconds after which a task that has begun, and not reported, may be blocked.

        That is four times as long as the slowest first report so far.
        """
        return max(BLOCKED_SECONDS, 4 * self._slowest)

    def hear(self, trial: Trial, now: float, begins: int, step: int | None, *, late: bool) -> None:
        """Record that a trial has sent a message at the time `now`, and does what it last said.

        The first one after it was sent to a worker, or with `begins`, is from where it goes on: see
        `arrive`. The first one of a trial may be `late` because it was blocked.
        """
        trial.heard = now
        if trial.state.trains:
            trial.become(TrialState.BLOCKED if late else TrialState.TRAINS)
        if trial.state.migrates or begins:
            self.arrive(trial, begins, step)

    @staticmethod
    def secede(trial: Trial) -> None:
        """Record that a trial has given up its thread: if it was sent, it has not arrived yet."""
        trial.become(TrialState.MIGRATING if trial.state.migrates else TrialState.LEFT)

    def leave(self, key: Hashable) -> bool:
        """Record that a trial is on no worker any more. Returns whether it goes on from a state."""
        trial = self.alive.get(key)
        if trial is None or not trial.checkpoint.reports:
            return False
        trial.become(TrialState.MIGRATING)
        return True

    def arrive(self, trial: Trial, begins: int, step: int | None = None) -> None:
        """Record that a trial goes on after `begins` reports, of which it may have made more.

        It goes on with a `step`, by default the one after so many.
        """
        trial.again = max(trial.reports - begins, 0)
        if begins > trial.reports:  # it is known by its state alone
            self._recall(trial, begins + 1 if step is None else step)
            trial.reports, trial.step = begins, max(trial.step, begins)
        self.begin_turn(trial)

    def _recall(self, trial: Trial, step: int) -> None:
        """Let a trial have what it reported before a step, until its result was lost."""
        if (lost := trial.lost) is None:
            return
        trial.times.began, trial.params = lost.times.began, lost.params
        for at, loss in zip(lost.losses.curve.steps, lost.losses.curve.losses, strict=True):
            if at < step:
                trial.step = at
                self._take(trial, loss)
        for name, before in lost.others.items():
            curve = trial.others[name] = TrialCurve()
            for at, value in zip(before.steps, before.losses, strict=True):
                if at < step:
                    curve.add(at, value, self._most_points)
            if not curve:
                del trial.others[name]

    def begin_turn(self, trial: Trial) -> None:
        """Record that a trial goes on for a turn."""
        trial.become(TrialState.TRAINS)
        trial.turn.begun_at = trial.reports
        self._turns[trial.worker] = self._turns.get(trial.worker, 0) + 1

    def second_looks(self, worker: str, one_of: int = 8) -> bool:
        """Return whether the next turn on a worker, one of so many, is its least advanced trial's.

        Losses that stay high for long, and then fall, are predicted to stay high. Such trials would
        come last, so some turns go round once a model is ready.
        """
        return bool(self.ended_of) and self._turns.get(worker, 0) % one_of == 0

    def end(self, key: Hashable, outcome: str, error: str = "") -> None:
        """Record that the task of a trial ended, or with an empty outcome, that it runs again."""
        trial = self.alive.pop(key, None)
        if trial is None:
            return
        self.scores.predictor.remove(trial.name)
        self._reported.pop(trial.name, None)
        if outcome:
            trial.become(TrialState.ENDED)
            trial.lost, trial.outcome = None, trial.verdict or outcome
            trial.times.ended = self._clock()
            if trial.outcome == "failed":
                trial.error = error[:300]
            self._add_ended(trial)
        elif trial.lost is not None:
            self._lost.setdefault(key, {})[trial.number] = trial.lost

    def _add_ended(self, trial: Trial) -> None:
        some = self.ended_of.setdefault(trial.key, {})
        some[trial.number] = trial
        if len(some) > self._most_of_a_task:
            del some[next(iter(some))]
        if trial.outcome == "done" and not self._dropped:
            self._longest = max(self._longest, trial.step)
            if not trial.diverges:
                self.peers[trial.group].end(trial.losses.latest)

    def restore(self, row: Mapping[str, Any]) -> None:
        """Add a trial that ended in another search, from its row with its curves."""
        sign = -1.0 if self.settings.maximize else 1.0
        self._count += 1
        trial = trial_of(row, str(self._count), sign)
        if trial.losses.count:
            self._best = min(self._best, *trial.losses.curve.losses)
        self._add_ended(trial)

    def drop(self, key: Hashable) -> None:
        """Forget the trials of a task, and what others are compared with because of them."""
        trial = self.alive.get(key)
        self.end(key, "")
        self._lost.pop(key, None)
        some = [*self.ended_of.pop(key, {}).values(), *([] if trial is None else [trial])]
        for each in some:
            self._parts.get(each.candidate or "", {}).pop((key, each.number), None)
        self._dropped = self._dropped or bool(some)

    def again(self, key: Hashable) -> None:
        """Record that a task that had ended runs again: its result was lost, or it is retried."""
        for trial in self.ended_of.pop(key, {}).values():
            self._lost.setdefault(key, {})[trial.number] = trial

    def change(self, **settings: Any) -> None:
        """Change some of the `SearchSettings`; all trials are judged by them from now on."""
        self.settings = replace(self.settings, **settings)
        self._judge_anew()

    def _judge_anew(self) -> None:
        self._reported |= {t.name: t for t in self.alive.values() if t.losses.count}

    def forecast(self) -> None:
        """Predict the final losses of the trials whose turn is over, and that reported since."""
        trials = [trial for trial in self._reported.values() if not trial.in_turn]
        if not trials:
            return  # a fit takes two milliseconds, however few have reported
        for trial in trials:
            del self._reported[trial.name]
        self.scores.forecast(trials, list(self), self.settings, self._steps_to_come)
        if self._parts and self.settings.prunes and self.settings.goal == "best":
            rank_candidates([trial for trial in self if trial.losses.count])

    def ranks(self) -> list[PastModel]:
        """Return the ranks of the models of this search, for the next one of its kind."""
        some = [trial for trial in self.ended if trial.outcome in ("done", "pruned", "failed")]
        return ranks_of([(trial.params, _last_known(trial)) for trial in some])

    def choose_leads(self, threads: int) -> None:
        """Let some trials keep one of eight `threads` to their end, until a model is ready."""
        if self.settings.goal == "best" and not self.ended_of:
            choose_leads(list(self.alive.values()), threads, self.seconds_left)

    def steps_left(self, trial: Trial) -> int:
        """Return the expected number of steps to come of a trial."""
        if self.settings.steps:
            return max(self.settings.steps - trial.step, 1)
        # One that outlives the longest that has ended makes as many again.
        if trial.step < self.longest:
            return self.longest - trial.step
        return max(trial.step, FEWEST_REPORTS)

    def _steps_to_come(self, trial: Trial) -> tuple[int, int]:
        """Return the expected steps to come of a trial, and as many as it may make."""
        left = self.steps_left(trial)
        return left, left if self.settings.steps else max(left, max(trial.step, FEWEST_REPORTS))

    def seconds_left(self, trial: Trial) -> float:
        """Return the expected seconds that a trial still computes."""
        return self.steps_left(trial) * trial.seconds_per_step

    def seconds_of_one(self) -> float:
        """Return the mean seconds that a trial that has not ended computes from start to end."""
        some = [trial for trial in self.alive.values() if trial.reports]
        seconds = [trial.times.computed + self.seconds_left(trial) for trial in some]
        return sum(seconds) / max(len(seconds), 1)

    def is_at_its_end(self, trial: Trial) -> bool:
        """Return whether a trial has made its last report, as far as is known."""
        steps = self.settings.steps
        return steps is not None and trial.step + trial.losses.stride > steps

    def gives_up(self, trial: Trial) -> bool:
        """Return whether a trial should end now: it is without hope, or over its time.

        One whose result others want ends by itself.
        """
        if trial.shared:
            return False
        chosen = self.settings
        if chosen.trial_timeout is not None and trial.times.computed > chosen.trial_timeout:
            return True
        if not chosen.prunes or self.is_at_its_end(trial):
            return False
        if trial.candidate is None:
            return self._is_hopeless(trial)
        parts = self._parts[trial.candidate].values()
        if any(part.verdict == "pruned" for part in parts):
            return True
        if any(part.outcome == "done" or self._is_late(part) for part in parts):
            return False
        return 2 * sum(part.hopeless for part in parts) > len(self._groups)

    def judge_groups(self) -> None:
        """Judge which trials are without hope in their group, before any candidate is given up."""
        if self._parts and self.settings.prunes:
            for trial in self.alive.values():
                trial.hopeless = trial.candidate is not None and self._is_hopeless(trial)

    def _is_late(self, trial: Trial, part: float = 0.33) -> bool:
        """Return whether a trial may end before it hears a verdict: in this part of its steps."""
        most = self.settings.steps or math.inf
        ahead = 2 * trial.losses.stride if trial.state.waits else part * most
        return not trial.state.ended and trial.step + ahead > most < math.inf

    def _is_hopeless(self, trial: Trial) -> bool:
        """Return whether a trial is without hope, compared with those of its group."""
        chosen = self.settings
        if trial.diverges:
            patience = chosen.pruning.reports(chosen.steps)
            others = (t for t in self if t is not trial and t.group == trial.group)
            return stays_diverged(trial, others, patience)
        if self.scores.goal is not None:
            return trial.name in self.scores.hopeless
        self._compare_anew()
        count = self._count if trial.group is None else self._count // len(self._groups)
        return self.peers[trial.group].is_hopeless(trial, chosen, count, self._longest)

    @property
    def _groups(self) -> set[str | None]:
        return self.peers.keys() - {None}

    def put_into_group(self, trial: Trial, group: str, candidate: str) -> None:
        """Prune a trial by those of its group, and a candidate in all groups or in none."""
        trial.group, trial.candidate = group, candidate
        self._parts.setdefault(candidate, {})[trial.key, trial.number] = trial
        self.peers[group]  # so that it is one of the groups

    def lacks_groups(self) -> str:
        """Return the parameter that alone tells which were pruned; empty if models have groups."""
        self._looks += 1
        if self._groups or self._looks > 100:
            return ""
        return telling_parameter(self, lambda trial: trial.verdict == "pruned")

    def as_dicts(self, *, curves: bool = False) -> list[dict[str, Any]]:
        """Return one dict per trial, with losses as they were reported; see `row_of`."""
        sign = -1.0 if self.settings.maximize else 1.0
        return [row_of(trial, sign, curves=curves) for trial in self]


def _last_known(trial: Trial) -> float:
    """Return the loss with which a trial ended, or was predicted to; inf if that is not known."""
    final = final_of(trial)
    wrong = trial.diverges or trial.outcome == "failed" or not math.isfinite(final)
    return math.inf if wrong else final
