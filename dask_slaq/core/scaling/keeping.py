"""For how long a worker without work is kept, and which number of workers that makes."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

__all__ = ["Levels", "seconds_to_keep"]

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
    >>> seconds_to_keep([40.0] * 20, again=60.0)
    60.0
    >>> seconds_to_keep([600.0] * 20, again=60.0)
    0.0
    >>> seconds_to_keep([90.0] * 20 + [5.0], again=100.0)
    100.0
    """
    if not pauses:
        return max(again, least)
    known = np.asarray(pauses, dtype=float)
    # Pauses shorter and longer than anything seen are possible: some that end at any time.
    assumed = np.linspace(0.0, 2.0 * again, 2 * PRIOR + 1)[1::2]
    every = np.concatenate([known, assumed])
    tries = np.unique(np.concatenate([[0.0, again], every[every <= again] + 1e-9]))
    cost = [
        np.where(every <= seconds, np.minimum(every, seconds), seconds + again).sum()
        for seconds in tries
    ]
    best = float(tries[int(np.argmin(cost))])
    # A little longer than the pause that it is to outlast.
    return max(min(best * 1.1, again) if best else 0.0, least)


class Levels:
    """Number of workers to have, from the number wanted now: one more, and for a while.

    Level `k` is wanted while at least `k` workers are. It stays for `stay` seconds from then on,
    and for as long as it pays to keep a worker that may be wanted again.
    """

    def __init__(self) -> None:
        self._wanted: list[float] = []  # when each level was last wanted
        self._asked: list[float] = []  # when it was first asked for since it was last given up
        self._pauses: deque[float] = deque(maxlen=REMEMBERED)
        self._idle: list[bool] = []  # whether it has been without work since

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds for which levels were not wanted, before they were again."""
        return tuple(self._pauses)

    def asked(self, level: int) -> float | None:
        """Return since when there is to be a `level`, from 1; None if there is not."""
        return self._asked[level - 1] if level <= len(self._asked) else None

    def update(self, wanted: int, now: float, keep: float, stay: float) -> int:
        """Return how many workers there are to be, `keep` and `stay` in seconds."""
        held = len(self._asked)
        for k in range(min(wanted, len(self._wanted))):
            if self._idle[k]:
                self._pauses.append(now - self._wanted[k])
            self._wanted[k], self._idle[k] = now, False
        for k in range(wanted, len(self._wanted)):
            self._idle[k] = True
        self._wanted += [now] * (wanted - len(self._wanted))
        self._idle += [False] * (wanted - len(self._idle))
        target = wanted
        for k in range(wanted, held):
            if now - self._wanted[k] < keep or now - self._asked[k] < stay:
                target = k + 1
        del self._asked[target:]
        self._asked += [now] * (target - len(self._asked))
        return target
