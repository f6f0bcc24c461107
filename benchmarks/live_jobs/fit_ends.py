"""Constants of the expected ends of jobs that the ends of some runs would have chosen."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from scipy.optimize import minimize

from dask_slaq.core.jobs.ends import GUESSED, EndForecasts, done_and_times

#: Seconds; less that are left are no end to foretell.
LEAST = 0.05


class Noted:
    """What engines go by at each decision while this is entered, and when the jobs ended."""

    def __init__(self) -> None:
        self._running: dict[int, list[tuple[float, ...]]] = {}  # by row in the engine
        # Of each look: logarithm of the seconds left, part done, mean and range of the logarithms
        # of the three times, reason, and weight. Each fifth of a job weighs the same.
        self._looks: list[tuple[float, ...]] = []

    def __enter__(self) -> Noted:
        forecast, learn = EndForecasts.forecast, EndForecasts.learn

        def look(ends: Any, rows: Any, attained: Any, total: Any, rates: Any, *rest: Any) -> Any:
            reason, _, _, epoch, now, _ = rest
            done, times = done_and_times(attained, total, rates, epoch)
            for row, *seen in zip(
                rows.tolist(), done, times.mean(axis=0), np.ptp(times, axis=0), reason, strict=True
            ):
                self._running.setdefault(row, []).append((now, *seen))
            return forecast(ends, rows, attained, total, rates, *rest)

        def end(ends: Any, row: int, now: float) -> None:
            looks = [look for look in self._running.pop(row, []) if now - look[0] > LEAST]
            fifth = [min(int(5 * look[1]), 4) for look in looks]
            for (at, *seen), i in zip(looks, fifth, strict=True):
                self._looks.append((np.log(now - at), *seen, 1 / fifth.count(i)))
            learn(ends, row, now)

        self._patch = mock.patch.multiple(EndForecasts, forecast=look, learn=end)
        self._patch.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._patch.__exit__(None, None, None)

    def constants(self) -> dict[str, float]:
        """Return the constants with the lowest interval score of an 80 % band."""
        real, done, mean, spread, reason, weight = np.array(self._looks).T
        guess, known = reason == GUESSED, np.isfinite(mean)

        def score(of: Any, middle: Any, half: Any) -> float:
            low, high = middle - half, middle + half
            over = np.maximum(low - real, 0) + np.maximum(real - high, 0)
            return float(np.average((2 * half + 10 * over)[of], weights=weight[of]))

        def all_of(x: Any) -> float:
            half = np.maximum(x[2] + x[3] * spread, 0.01)
            return score(known & ~guess, mean + x[0] + x[1] * done**3, half)

        best = minimize(all_of, [0.3, -0.5, 0.3, 0.2], method="Nelder-Mead").x
        middle, half = mean + best[0] + best[1] * done**3, best[2] + best[3] * spread
        factors = np.arange(1, 8, 0.25)
        scores = [score(known & guess, middle, factor * half) for factor in factors]
        names = ("middle", "to_end", "narrowest", "spread")
        found = dict(zip(names, best.tolist(), strict=True))
        return {**found, "guess": float(factors[np.argmin(scores)])}
