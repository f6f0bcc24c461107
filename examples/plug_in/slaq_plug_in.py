"""What a package can add to dask_slaq: policies, predictors, goals, rules and owners."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.forecast import FitStatus, Forecast
from dask_slaq.core.search_settings import Judgement
from dask_slaq.policies import GreedyPolicy


class HighLoss(GreedyPolicy):
    """Threads by how fast the loss falls, times a power of the loss that is left."""

    name = "high-loss"

    def __init__(self, power=1.0):
        self.power = power

    def marginal_value(self, snapshot, start, stop):
        """Return the value of one thread to each job. See `GreedyPolicy.marginal_value`."""
        rise = snapshot.gain(stop) - snapshot.gain(start)
        return snapshot.weight * snapshot.normalized**self.power * rise / (stop - start)


class Halving:
    """Predicts that each drop of the loss is half of the drop before. See `Predictor`."""

    HORIZONS = np.array([0.0, 1.0, 2.0, 5.0, 10.0, 100.0])

    def __init__(self):
        self.runs = {}

    def add(self, job, *, target=None):
        """Follow a job."""
        self.runs[job] = (0, np.nan, np.nan, 0.0, 0.0)

    def remove(self, job):
        """Forget a job."""
        del self.runs[job]

    def report(self, job, loss):
        """Store a loss."""
        n, first, last, largest, _ = self.runs[job]
        if n == 0:
            self.runs[job] = (1, loss, loss, 0.0, abs(loss))
        else:
            largest = max(largest, abs(last - loss))
            self.runs[job] = (n + 1, first, loss, largest, max(last - loss, 0.0))

    def fit(self):
        """Do nothing: a forecast is made when it is asked for."""
        return 0

    def forecast(self, jobs):
        """Return the forecasts of some jobs."""
        runs = np.array([self.runs[job] for job in jobs], dtype=float).reshape(-1, 5)
        n, first, last, largest, drop = runs.T
        return Forecast(
            horizons=self.HORIZONS,
            reduction=drop[:, None] * (1.0 - 0.5**self.HORIZONS),
            start=first,
            level=last,
            remaining=drop,
            largest_change=largest,
            noise=np.zeros(len(runs)),
            n_reports=n.astype(np.int64),
            status=np.where(n > 1, FitStatus.OK, FitStatus.TOO_FEW_REPORTS),
        )


class Asha:
    """Successive halving: of the models that reach a rung, the best of each `factor` go on first.

    Rungs are at `first`, ``first * factor``, ... steps. In a search that prunes, the others end.
    See `dask_slaq.core.search_settings.Goal`.
    """

    def __init__(self, first=4, factor=3):
        self.first, self.factor = first, factor

    def __call__(self, models):
        """Return scores: by rung, and by loss within it; and who is below the best of a rung."""
        reached = [self.losses_at_rungs(model) for model in models]
        scores, hopeless = [], set()
        for at, (model, losses) in enumerate(zip(models, reached, strict=True)):
            passed = 0
            for rung, loss in enumerate(losses):
                others = sorted(one[rung] for one in reached if len(one) > rung)
                if loss > others[(len(others) - 1) // self.factor]:
                    hopeless.add(at)
                    break
                passed += 1
            scores.append(-1e6 * passed + np.clip(model.loss, -1e5, 1e5))
        return Judgement(scores, hopeless)

    def losses_at_rungs(self, model):
        """Return the loss of a model at each rung that it has reached."""
        rung, found = self.first, []
        for step, loss in zip(model.at, model.losses, strict=True):
            if step >= rung:
                found.append(loss)
                rung *= self.factor
        return found


class PerJob:
    """As many workers for each job that has work, whatever they cost. See `ScalingRule`."""

    def __init__(self, workers=1):
        self.workers = workers

    def __call__(self, value, here):
        """Return the number of workers."""
        return self.workers * len(value.demand.work)


def owner_by_host(connection):
    """Say that all clients of a machine are of one owner."""
    return "host-" + connection["address"].rpartition("://")[2].rpartition(":")[0]
