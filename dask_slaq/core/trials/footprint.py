"""Memory of the models of a search, and how many more may begin beside those that wait."""

from __future__ import annotations

import math
from collections import deque

#: Part of a worker's memory limit that the models of searches may fill while some of them wait.
MEMORY_PART = 0.6
#: The same, for models that leave their worker instead of waiting there. Dask pauses it at 80 %.
MOVING_PART = 0.75
#: As many models as there may be.
MANY_MODELS = 10**9


class Footprint:
    """Bytes that a model of one search adds to its worker, learned from those that have begun.

    Of the growth up to the first report, the largest of the last `recent` models counts.

    >>> model = Footprint()
    >>> model.begin(200)
    >>> model.begin(300)
    >>> for grown in (10, 10, 500, 10):
    ...     model.step(grown)
    >>> model.bytes(steps=20)
    490.0
    """

    def __init__(self, recent: int = 32) -> None:
        self._begun: deque[float] = deque(maxlen=recent)
        self._guess: float | None = None
        self._steps, self._grown, self._largest = 0, 0.0, 0.0

    @property
    def is_measured(self) -> bool:
        """Whether the growth up to the first report of some model was measured by its worker."""
        return bool(self._begun)

    def begin(self, grown: float) -> None:
        """Record by how many bytes a worker grew up to the first report of a model."""
        self._begun.append(max(grown, 0.0))

    def guess(self, grown: float) -> None:
        """Record the bytes by which a worker grew at most, until such growth is measured."""
        self._guess = max(self._guess or 0.0, grown)

    def step(self, grown: float) -> None:
        """Record by how many bytes a worker grew from one report of its models to the next."""
        self._steps += 1
        self._grown = max(self._grown + grown, 0.0)
        self._largest = max(self._largest, grown)

    @property
    def per_step(self) -> float:
        """Mean growth in bytes per report after the first.

        The largest is left out, since a library may have been loaded.
        """
        if self._steps < 2:
            return 0.0
        return max(self._grown - self._largest, 0.0) / (self._steps - 1)

    def bytes(self, steps: int) -> float | None:
        """Return the bytes of a model after `steps` reports, or None if nothing is known."""
        first = max(self._begun) if self._begun else self._guess
        return None if first is None else first + self.per_step * max(steps - 1, 0)


class MoveSpeed:
    """Bytes per second at which models are put down and taken up again, learned from the last ones.

    Models leave for the disk of their worker, and mostly come back from it. So it is taken to be
    fast, until the first ones were measured.

    >>> speed = MoveSpeed()
    >>> speed.learn(nbytes=300_000_000, seconds=2.75)
    >>> round(speed.bandwidth / 1e6)
    129
    """

    def __init__(self) -> None:
        self._bytes, self._seconds = 100e6, 0.25

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self._bytes / self._seconds

    def learn(self, nbytes: float, seconds: float) -> None:
        """Record a state that was kept or fetched. Small ones tell nothing of larger ones."""
        if nbytes >= 1e6:
            self._bytes = 0.8 * self._bytes + nbytes
            self._seconds = 0.8 * self._seconds + seconds


def admitted(model: Footprint, steps: int, unseen: int, left: float) -> int:
    """Return how many more models may begin on a worker beside models that wait there.

    Each makes `steps` reports. `unseen` models run there and have not reported, so their memory is
    still to come. `left` are the bytes up to `MEMORY_PART`, less what models that have reported
    will still take.

    >>> model = Footprint()
    >>> model.begin(100)
    >>> admitted(model, steps=1, unseen=1, left=350)
    2
    """
    size = model.bytes(steps)
    if size is None or left < 0:
        return 0
    most = MANY_MODELS if size * MANY_MODELS <= left else math.floor(left / size) - unseen
    # A guess may be wrong, so one model begins, and is measured.
    return max(most if model.is_measured else min(most, 1), 0)
