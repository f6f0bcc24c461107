"""Runs of which the end is not known: their clients or schedulers may have been lost."""

from __future__ import annotations

from dataclasses import dataclass

from dask_slaq.core.memory import PastRun

__all__ = ["LAPSE", "Unfinished"]

#: Seconds after which an unfinished run that nobody took up again has failed.
LAPSE = 600.0


@dataclass(frozen=True)
class Unfinished:
    """A run of which the end is not known, as it was when it was last written: at ``run.ended``."""

    key: str
    owner: str
    run: PastRun
