"""Models whose first losses mislead: rewards, learning rates by schedule, plateaus, folds.

Each function trains one model, as those of `training` do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.ensemble import GradientBoostingRegressor
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from benchmarks.search_policies.epochs import Curve, epochs, squared

Found = tuple[Curve, float]

#: Episodes per report.
EPISODES = 4


def rewards(chance: np.random.Generator, episode: Any, steps: int) -> Found:
    """Train an agent by its own noisy rewards; an `episode` of `ENVIRONMENTS` learns as it runs."""
    run = episode(chance)
    return [-sum(run() for _ in range(EPISODES)) / EPISODES for _ in range(steps)], 1.0


def _cart_pole(chance: np.random.Generator) -> Callable[[], float]:
    """REINFORCE with a linear policy on Barto's cart and pole (1983), of 200 steps at most."""
    rate, decay = 10 ** chance.uniform(-4, -1.5), 1 - 10 ** chance.uniform(-2.5, -0.5)
    weights, level = [0.0] * 4, 0.0
    slow = chance.uniform(0.5, 0.99)  # of the mean return that is subtracted

    def episode() -> float:
        nonlocal level
        state, taken, total = chance.uniform(-0.05, 0.05, 4).tolist(), [], 0.0
        luck = chance.random(200).tolist()
        for u in luck:
            x, v, angle, spin = state
            if abs(x) > 2.4 or abs(angle) > 0.21:
                break
            dot = sum(w * s for w, s in zip(weights, state, strict=True))
            right = 1 / (1 + math.exp(-max(min(dot, 50.0), -50.0)))
            act = u < right
            taken.append([(act - right) * s for s in state])
            sine, cosine = math.sin(angle), math.cos(angle)
            force = ((10.0 if act else -10.0) + 0.05 * spin**2 * sine) / 1.1
            turn = (9.8 * sine - cosine * force) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
            push = force - 0.05 * turn * cosine / 1.1
            state = [x + 0.02 * v, v + 0.02 * push, angle + 0.02 * spin, spin + 0.02 * turn]
            total += 1 - abs(angle)
        ahead = 0.0
        steps = [0.0] * 4
        for gradient in reversed(taken):
            ahead = 1 + decay * ahead
            for k in range(4):
                steps[k] += (ahead - level) * gradient[k]
        level = slow * level + (1 - slow) * ahead
        for k in range(4):
            weights[k] += rate * steps[k]
        return total

    return episode


def _corridor(chance: np.random.Generator) -> Callable[[], float]:
    """Q-learning in a corridor of 12 rooms; a step costs 1, and one in five goes wrong."""
    rooms, most = 12, 150
    rate, decay = 10 ** chance.uniform(-2.5, 0), chance.uniform(0.8, 0.999)
    explores, fades = chance.uniform(0.02, 0.6), chance.uniform(0.95, 1.0)
    values = [[0.0, 0.0] for _ in range(rooms)]

    def episode() -> float:
        nonlocal explores
        at, cost = 0, 0.0
        for u, slip, noise in chance.random((most, 3)).tolist():
            best = values[at][1] > values[at][0]
            act = int(u * 2 / explores) if u < explores else int(best)
            to = min(max(at + (1 if (act == 1) == (slip > 0.2) else -1), 0), rooms)
            cost += 0.8 + 0.4 * noise
            won = to == rooms
            ahead = 10.0 if won else decay * max(values[to]) - 0.1
            values[at][act] += rate * (ahead - values[at][act])
            if won:
                break
            at = to
        explores *= fades
        return -cost

    return episode


#: What makes an agent that learns, by the name of its environment.
ENVIRONMENTS = {"cartpole": _cart_pole, "corridor": _corridor}


def _rate(chance: np.random.Generator, steps: int) -> Callable[[int], float]:
    """Return a schedule of learning rates, as a part of the first one."""
    kind = str(chance.choice(["constant", "cosine", "steps", "warm-up"]))
    if kind == "cosine":
        return lambda k: 0.5 * (1 + math.cos(math.pi * k / steps)) + 1e-3
    if kind == "steps":
        return lambda k: 0.1 ** (k >= steps // 2) * 0.1 ** (k >= steps * 3 // 4)
    if kind == "warm-up":
        up = steps // 5
        return lambda k: (k + 1) / up if k < up else 1 - (k - up) / (steps - up)
    return lambda k: 1.0


def schedule(chance: np.random.Generator, data: Any, steps: int) -> Found:
    """Train a network, or with two classes a linear model, whose learning rate has a schedule."""
    part, first = _rate(chance, steps), 10 ** chance.uniform(-2.5, 0)
    if len(np.unique(data[2])) == 2:
        linear = SGDClassifier(
            loss="log_loss", learning_rate="constant", alpha=10 ** chance.uniform(-6, -2),
            random_state=0,
        )  # fmt: skip
        return epochs(linear, data, steps, lambda k: linear.set_params(eta0=first * part(k))), 1.0
    network = MLPClassifier(
        (32,), solver="sgd", momentum=chance.uniform(0, 0.95), batch_size=64, random_state=0,
        alpha=10 ** chance.uniform(-5, -1), learning_rate_init=first * part(0),
    )  # fmt: skip

    def set_rate(k: int) -> None:
        if k:  # scikit-learn reads its parameter once
            network._optimizer.learning_rate = first * part(k)

    return epochs(network, data, steps, set_rate), 1.0


def parity() -> tuple[Any, Any]:
    """Return the parity of two of ten signs: no single one tells anything of it."""
    X = np.random.default_rng(7).choice([-1.0, 1.0], (300, 10))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


def plateau(chance: np.random.Generator, data: Any, steps: int) -> Found:
    """Train a network of sigmoids, which stays at chance level until it begins to learn.

    Without data the losses are made: of ten classes, half of the models learn nothing at first.
    """
    if data is None:
        stays = int(chance.integers(2, steps // 3)) if chance.random() < 0.5 else 0
        end, pace = 10 ** chance.uniform(-1.2, 0.2), 10 ** chance.uniform(-1.5, -0.2)
        end /= 1 + 4 * stays / steps  # the later, the better
        ages = np.maximum(np.arange(steps) - stays, 0.0)
        noise = chance.normal(size=steps)
        return (end + (math.log(10) - end) * np.exp(-pace * ages) + 0.003 * noise).tolist(), 1.0
    network = MLPClassifier(
        (24,) * int(chance.integers(1, 4)), activation="logistic", solver="sgd",
        learning_rate_init=10 ** chance.uniform(-1.5, 0.5), momentum=chance.uniform(0.5, 0.95),
        batch_size=64, alpha=10 ** chance.uniform(-6, -3), random_state=int(chance.integers(99)),
    )  # fmt: skip
    return epochs(network, data, steps), 1.0


def fold(chance: np.random.Generator, data: Any, steps: int) -> Found:
    """Train one and the same model on another part of the data."""
    X, y = np.concatenate(data[:2]), np.concatenate(data[2:])
    seed = int(chance.integers(10**6))
    X, Xv, y, yv = train_test_split(X, y, test_size=0.2, random_state=seed)
    if y.dtype.kind != "f":
        model = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=1e-3, random_state=0)
        return epochs(model, (X, Xv, y, yv), steps), 1.0
    trees = GradientBoostingRegressor(n_estimators=steps, max_depth=2, random_state=0).fit(X, y)
    return [squared(yv, found) for found in trees.staged_predict(Xv)], 1.0
