"""For how long a worker without work is kept, and which number of workers that makes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

#: Pauses that are remembered, and how many of them the rule without any experience counts for.
REMEMBERED, PRIOR = 64, 4


def seconds_to_keep(pauses: Sequence[float], again: float, least: float = 0.0) -> float:
    """Return for how many seconds to keep a worker that has no work.

    `pauses` are the seconds for which workers had none before they were wanted again, and `again`
    is what it costs to get one again, in seconds of a worker. To keep it for that long never costs
    more than twice the best (as to rent skis until they are paid for). With experience it is the
    time that would have cost least over the pauses, from `least` seconds on.

    >>> seconds_to_keep([], again=60.0)
    60.0
    >>> round(seconds_to_keep([40.0] * 20, again=60.0), 3)
    49.5
    >>> seconds_to_keep([600.0] * 20, again=60.0)
    0.0
    >>> round(seconds_to_keep([90.0] * 20 + [5.0], again=100.0), 3)
    99.0
    """
    if not pauses:
        return max(again, least)
    known = np.asarray(pauses, dtype=float)
    # Pauses shorter and longer than anything seen are possible: some that end at any time.
    assumed = np.linspace(0.0, 2.0 * again, 2 * PRIOR + 1)[1::2]
    every = np.concatenate([known, assumed])
    tries = np.unique(np.concatenate([[0.0, again], every[every <= again]]))
    cost = [
        np.where(every <= seconds, np.minimum(every, seconds), seconds + again).sum()
        for seconds in tries
    ]
    best = float(tries[int(np.argmin(cost))])
    # A little longer than the pause that it is to outlast.
    return max(min(best * 1.1, again) if best else 0.0, least)


class Levels:
    """Number of workers to have, from the number that pays now and what each would be of use.

    Level `k` is wanted while at least `k` workers pay. Short work that comes again and again never
    pays for a worker by itself: a level that is not there is asked for, too, once its lack has cost
    more than it would have, by what it costs to get. A level stays for a while from when it was
    asked for, and for as long as it pays to keep a worker that may be wanted again.
    """

    def __init__(self) -> None:
        self._wanted: list[float] = []  # when each level was last wanted
        self._asked: list[float] = []  # when it was first asked for since it was last given up
        self._idle: list[bool] = []  # whether it has been without work since
        self._missed: list[float] = []  # what its lack has cost beyond it, in worker-seconds
        self._use: list[float] = []  # what it was worth per second when last wanted, in workers
        self._pauses: deque[float] = deque(maxlen=REMEMBERED)
        self._last: float | None = None

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds for which levels were not wanted, before they were again."""
        return tuple(self._pauses)

    def asked(self, level: int) -> float | None:
        """Return since when there is to be a `level`, from 1; None if there is not."""
        return self._asked[level - 1] if level <= len(self._asked) else None

    def update(
        self, pays: int, now: float, *, use: Sequence[float], start_up: float, stay: float
    ) -> int:
        """Return how many workers there are to be.

        `pays` is the number that pays now, and `use` what each level is worth per second if it is
        there, in workers. A worker comes after `start_up` seconds, and stays for `stay` seconds.
        """
        held, most = len(self._asked), max(pays, len(use))
        wanted = max(pays, self._miss(use, now, held, start_up + stay))
        for some, value in (
            *((self._wanted, now), (self._idle, False), (self._missed, 0.0), (self._use, 0.0)),
        ):
            some += [value] * (most - len(some))
        for k in range(wanted):
            if self._idle[k]:
                self._pauses.append(now - self._wanted[k])
            self._wanted[k], self._idle[k] = now, False
            self._use[k] = max(use[k] if k < len(use) else 0.0, 0.98 * self._use[k])
        target = wanted
        for k in range(wanted, held):
            self._idle[k] = True
            again = start_up * (1.0 + self._use[k])
            keep = seconds_to_keep(self._pauses, again)
            if now - self._wanted[k] < keep or now - self._asked[k] < start_up + stay:
                target = k + 1
        for k in range(target):
            self._missed[k] = 0.0
        del self._asked[target:]
        self._asked += [now] * (target - len(self._asked))
        return target

    def _miss(self, use: Sequence[float], now: float, held: int, cost: float) -> int:
        """Return the highest level that has been missed for what it costs."""
        elapsed, self._last = 0.0 if self._last is None else now - self._last, now
        self._missed += [0.0] * (len(use) - len(self._missed))
        for k in range(held, len(self._missed)):
            # If it were there, it would cost a second of a worker each second, in pauses as well.
            gained = (use[k] if k < len(use) else 0.0) - 1.0
            self._missed[k] = max(self._missed[k] + gained * elapsed, 0.0)
        return max((k + 1 for k in range(held, len(use)) if self._missed[k] >= cost), default=0)
