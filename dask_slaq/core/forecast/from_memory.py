"""Jobs of known kind: their curves, and what like past runs tell of them; see `Hypotheses`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dask_slaq.core.forecast.hypotheses import Hypotheses
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.core.memory import Kind, PastRuns, Traces

if TYPE_CHECKING:
    from dask_slaq.core.forecast.cache import ForecastCache


class FromMemory:
    """What past runs tell of jobs of known kind. See `LossPredictor`."""

    def __init__(self, memory: PastRuns) -> None:
        self._memory = memory
        self._slot_of = np.full(0, -1, dtype=np.int64)  # by the row of the predictor; -1 for none
        self._traces = Traces()
        self._hypotheses: Hypotheses | None = None  # until a job has a like run

    def add(self, row: int, kind: Kind) -> FloatArray | None:
        """Add the job in a row of the predictor.

        Returns its falls (n_horizons,) from before the first report, in units of its range; None if
        no run is like it.
        """
        slot = self._traces.acquire()
        if row >= len(self._slot_of):
            grown = np.full(max(16, 2 * row), -1, dtype=np.int64)
            grown[: len(self._slot_of)] = self._slot_of
            self._slot_of = grown
        self._slot_of[row] = slot
        like = self._memory.like(kind)
        if self._hypotheses is None:
            if not any(run.outcome == "done" for run, _ in like):
                return None
            self._hypotheses = Hypotheses(self._traces)
        return self._hypotheses.expect(slot, like)

    def remove(self, row: int) -> None:
        """Forget the job in a row."""
        if (slot := self._slot(row)) >= 0:
            self._slot_of[row] = -1
            self._traces.release(slot)

    def append(self, rows: IntArray, losses: FloatArray) -> None:
        """Append reports; those of jobs without a kind are ignored. See `Histories.append`."""
        if not len(self._slot_of):
            return
        slots = self._slots(rows)
        some = slots >= 0
        if some.any():
            self._traces.append(slots[some], losses[some])

    def cut(self, row: int, most: float) -> None:
        """Cut the reports of the job in a row down to `most`, as `Histories` did."""
        if (slot := self._slot(row)) >= 0:
            self._traces.cut(slot, most)

    def likeness(self, row: int) -> int:
        """Return the number of runs on which the forecast of the job in a row rests."""
        slot = self._slot(row)
        return 0 if slot < 0 or self._hypotheses is None else self._hypotheses.likeness(slot)

    def curve(self, row: int) -> tuple[IntArray, FloatArray] | None:
        """Return the loss curve of the job in a row, thinned; None if its kind is not known."""
        slot = self._slot(row)
        return None if slot < 0 else self._traces.curve(slot)

    def _slot(self, row: int) -> int:
        return self._slot_of.item(row) if row < len(self._slot_of) else -1

    def _slots(self, rows: IntArray) -> IntArray:
        slots = np.full(len(rows), -1, dtype=np.int64)
        inside = rows < len(self._slot_of)
        slots[inside] = self._slot_of[rows[inside]]
        return slots

    def mix(self, rows: IntArray, cache: ForecastCache) -> None:
        """Mix forecasts from memory into those that the reports of these jobs alone gave."""
        if self._hypotheses is not None:
            self._hypotheses.mix(rows, self._slots(rows), cache)
