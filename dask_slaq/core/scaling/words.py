"""What a number of workers is worth, in words."""

from __future__ import annotations

import math
from typing import Any

from dask_slaq.core.scaling.worth import Worth
from dask_slaq.core.scaling_terms import ScalingTerms


def seconds_in_words(seconds: float) -> str:
    """Return a time with a fitting unit, such as ``90 s`` or ``2.5 h``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def in_words(worth: Worth, here: int, best: int, asked: int | None, terms: ScalingTerms) -> str:
    """Return why `best` workers pay, or what `asked` ones would change; `here` are there now."""
    if not worth.demand.work.size:
        reason = f"no work waits: {_workers(best)}"
        if best:
            reason += ", the minimum" if best == terms.minimum else ", for the data in memory"
        return reason
    if asked is not None and asked != here:
        return f"{_workers(asked)} instead of {here}: {_change(worth.compare(here, asked), terms)}"
    least = " at least" if best == terms.minimum else ""
    if best >= terms.maximum:
        return f"{_workers(best)}: no more are allowed; {_one_more(worth, best, terms)}"
    return f"{_workers(best)}{least}: {_one_more(worth, best, terms)}"


def _one_more(worth: Worth, best: int, terms: ScalingTerms) -> str:
    found = worth.compare(best, best + 1)
    if found["jobs"] == 0 or not math.isfinite(found["seconds"]):
        return "another one would save no time"
    saved = f"another one would save {seconds_in_words(found['seconds'])} of {_jobs(found['jobs'])}"
    return f"{saved}, worth {_money(found['worth'])}, and costs {_money(found['cost'], terms)}"


def _change(found: dict[str, Any], terms: ScalingTerms) -> str:
    last, cost = found["last"], found["cost"]
    for_ = f"for {_money(abs(cost), terms)} {'more' if cost >= 0 else 'less'}"
    if abs(cost) < 1e-12:
        for_ = "for the same"
    if math.isinf(last):
        return f"{'all would end at last' if last > 0 else 'nothing would end'}, {for_}"
    if abs(last) < 0.5 and abs(found["seconds"]) < 0.5:
        return f"nothing ends sooner, {for_}"
    if abs(last) < 0.5:
        sooner = "sooner" if found["seconds"] > 0 else "later"
        total = seconds_in_words(abs(found["seconds"]))
        return f"{_jobs(found['jobs'])} end {total} {sooner} in total, {for_}"
    return f"all ends {seconds_in_words(abs(last))} {'sooner' if last > 0 else 'later'}, {for_}"


def _workers(count: int) -> str:
    return f"{count} worker" + "s" * (count != 1)


def _jobs(count: int) -> str:
    return f"{count} job" + "s" * (count != 1)


def _money(amount: float, terms: ScalingTerms | None = None) -> str:
    unit = f" {terms.unit}" if terms is not None and terms.unit else ""
    return (f"{amount:.2f}" if abs(amount) >= 0.095 else f"{amount:.2g}") + unit
