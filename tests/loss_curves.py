"""Loss curves as people have them, made from seeds: what is unlike a smooth fall from the start."""

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.history import (
    FOLLOWING_REPORTS,
    GONE_PART,
    HUGE_RANGES,
    HUGE_SIZES,
    START_REPORTS,
)

Curve = NDArray[np.float64]


def fall(rng: np.random.Generator, n: int) -> Curve:
    """An ordinary fall between levels of order one, by a power or exponentially."""
    k = np.arange(n)
    shape = (1 + k / rng.uniform(1, 5)) ** -rng.uniform(0.7, 1.5)
    if rng.random() < 0.5:
        shape = rng.uniform(0.7, 0.93) ** k
    return rng.uniform(0.2, 1.0) + rng.uniform(0.3, 1.0) * shape


def huge_first(rng: np.random.Generator, n: int) -> Curve:
    """One or two huge losses, then an ordinary fall."""
    start = np.sort(10 ** rng.uniform(3.5, 32, rng.integers(1, 3)))[::-1]
    if len(start) == 2:
        start[0] = max(start[0], 1e3 * start[1])
    return np.concatenate([start, fall(rng, n - len(start))])


def flat_and_noise(rng: np.random.Generator, n: int) -> Curve:
    """A network that has died: its losses are noise around what guessing gives."""
    return rng.uniform(0.5, 5) + 10 ** rng.uniform(-3, -1) * rng.standard_normal(n)


def plateau_then_cliff(rng: np.random.Generator, n: int) -> Curve:
    """Exactly constant until it begins to learn, as in reinforcement learning."""
    at = int(rng.uniform(0.2, 0.5) * n)
    level = float(rng.choice([-10.0, 0.0, 2.303, 200.0]))
    k = np.arange(n - at)
    return np.concatenate([np.full(at, level), level - 100 * (1 - 0.8**k)])


def all_nan(rng: np.random.Generator, n: int) -> Curve:
    """Nothing but nan and infinite."""
    return rng.choice([np.nan, np.inf, -np.inf], n)


def some_nan(rng: np.random.Generator, n: int) -> Curve:
    """Infinite in the first steps, as loss scaling makes them, and nan here and there."""
    curve = fall(rng, n)
    curve[: rng.integers(0, 4)] = np.inf
    curve[4:][rng.random(n - 4) < 0.1] = np.nan
    return curve


def near_overflow(rng: np.random.Generator, n: int) -> Curve:
    """Between what can be compared and what a float can hold."""
    curve = fall(rng, n)
    curve[rng.random(n) < 0.3] = 10 ** rng.uniform(300.1, 308)
    return curve


def rounded(rng: np.random.Generator, n: int) -> Curve:
    """An accuracy on few samples: steps and ties."""
    return np.round(fall(rng, n) * 20) / 20


def sign_change(rng: np.random.Generator, n: int) -> Curve:
    """A log-likelihood or a reward that goes through zero."""
    return fall(rng, n) - rng.uniform(0.5, 1.0)


def warm_restart(rng: np.random.Generator, n: int) -> Curve:
    """Falls, jumps up where its learning rate is set back, and falls again."""
    period = max(n // 3, 2)
    k = np.arange(n)
    return 0.3 + 2.0 * 0.97**k + 0.3 * 0.85 ** (k % period)


def adversarial(rng: np.random.Generator, n: int) -> Curve:
    """The loss of a generator: it swings, and its mean goes nowhere."""
    k = np.arange(n)
    swing = np.sin(k / rng.uniform(2, 6)) + 0.3 * rng.standard_normal(n)
    return 1.5 + 0.4 * swing


def second_metric(rng: np.random.Generator, n: int) -> Curve:
    """Two losses of different size reported in turns by mistake."""
    curve = fall(rng, n)
    curve[1::2] *= 100.0
    return curve


KINDS = {
    make.__name__: make
    for make in (
        huge_first,
        flat_and_noise,
        plateau_then_cliff,
        all_nan,
        some_nan,
        near_overflow,
        rounded,
        sign_change,
        warm_restart,
        adversarial,
        second_metric,
    )
}


def without_huge_start(losses: list[float], window: int) -> list[float]:
    """What a history keeps of losses, found slowly: after each report, and of each start."""
    kept: list[float] = []
    most = min(START_REPORTS, window - window % 2 - 1)
    for loss in losses:
        kept.append(loss)
        if len(kept) > most:
            continue
        for n in range(len(kept) - FOLLOWING_REPORTS, 0, -1):
            high, low = max(kept[n:]), min(kept[n:])
            over = kept[n - 1] - high
            changed = high > low and (low < 0 or low > GONE_PART * high)
            if changed and over > HUGE_RANGES * (high - low) and over > HUGE_SIZES * abs(high):
                kept[:n] = [high] * n
                break
    return kept
