"""Models that have made no report for long: somebody is told of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dask_slaq.core.trials import Trials

logger = logging.getLogger(__name__)

#: Seconds between two looks beyond which the scheduler was blocked.
BLOCKED = 3.0


def tell_silent(
    name: str, trials: Trials, now: float, since: float, tell: Callable[[str, str, str], object]
) -> None:
    """Tell which models of a search have become silent; the last look was `since` seconds ago."""
    if since > BLOCKED:  # what they have sent meanwhile was not read yet
        for trial in trials.alive.values():
            trial.contact.last += since
    for trial in trials.find_silent(now):
        seconds, pace = now - trial.contact.last, trial.times.computed / max(trial.reports, 1)
        message = (
            f"model {trial.key} has made no report for {seconds:.0f} s on {trial.worker}, "
            f"where one took {pace:.3g} s: its thread is no longer counted on"
        )
        if trials.staying:
            message += "; it may need a lock that a model holds which waits in its report"
        logger.warning("search %s: %s", name, message)
        tell(name, "silent", message)
