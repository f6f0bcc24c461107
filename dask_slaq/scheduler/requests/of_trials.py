"""Validation of what trials say on workers; loaded when the first does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_number, shown
from dask_slaq.core.task_reports import LONGEST_METRIC, MOST_LOSSES, as_metrics, as_step
from dask_slaq.core.text import printable
from dask_slaq.core.trials import as_parameters, bounded
from dask_slaq.scheduler.trials import TrialMessage

#: What a trial does from its message on.
TRIAL_DOES = ("reports", "waits", "goes", "left", "keeps", "pruned", "stopped")


def check_trial(message: Mapping[str, Any]) -> TrialMessage:
    """Return what the message of a trial says. Raises `InvalidSetting`."""
    found: dict[str, Any] = {each.name: message.get(each.name) for each in fields(TrialMessage)}
    losses = found["losses"]
    if isinstance(losses, list | tuple) and len(losses) > MOST_LOSSES:
        for name in ("losses", "steps", "grown", "others"):  # the newest count
            listed = found[name]
            found[name] = listed[-MOST_LOSSES:] if isinstance(listed, list | tuple) else listed
    try:
        hash((found["key"], found["number"]))
        found["losses"] = [float(loss) for loss in found["losses"]]
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidSetting(
            f"a trial is known by its key and number, and has losses, not {shown(found)}"
        ) from error
    if found["what"] not in TRIAL_DOES or isinstance(losses, str | bytes):
        raise InvalidSetting(f"a trial does one of {TRIAL_DOES}, not {shown(found['what'])}")
    found["took"], found["life"] = found["took"] or 0.0, found["life"] or 0.0
    for name in ("computed", "waited", "at", "took", "life"):
        seconds = found[name]
        if not (is_number(seconds) and 0 <= seconds < math.inf):
            raise InvalidSetting(f"{name} must be a number of seconds, not {shown(seconds)}")
    memory: Any = [found["memory"], *_listed(found, "grown")]
    if not all(size is None or (is_number(size) and abs(size) < math.inf) for size in memory):
        raise InvalidSetting(f"a worker takes bytes of memory, not {shown(memory)}")
    found["steps"] = [as_step(step) for step in _listed(found, "steps")]
    found["begins"] = as_step(found["begins"]) or 0
    found["moves"] = as_step(found["moves"])
    found["state"] = None if found["state"] is None else _read_state(found["state"])
    found["params"] = read_params(found["params"])
    found["metric"] = printable(found["metric"] or "")[:LONGEST_METRIC]
    found["drawn"], found["anew"] = found["drawn"] is True, found["anew"] is True
    found["others"] = [as_metrics(others) if others else {} for others in _listed(found, "others")]
    return TrialMessage(**found)


def read_params(given: object) -> dict[str, Any] | None:
    """Return the parameters of a trial, as plain and bounded values."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise InvalidSetting(f"a trial has parameters by name, not {shown(given)}")
    return bounded(as_parameters(given))


def _read_state(given: object) -> dict[str, Any]:
    """Return what a trial says of its state: its name, bytes, reports, and where a replica goes."""
    if isinstance(given, Mapping):
        found = {name: given.get(name) for name in ("name", "nbytes", "reports", "peer")}
        texts = [found["name"], found["peer"]]
        counts: list[Any] = [found["nbytes"], found["reports"]]
        if all(isinstance(text, str) for text in texts) and all(
            isinstance(n, int) and 0 <= n < 2**63 for n in counts
        ):
            return found
    raise InvalidSetting(f"a state has a name, bytes, reports and a peer, not {shown(given)}")


def _listed(found: dict[str, Any], name: str) -> list[Any]:
    """Return what a trial says of each loss, as a list; empty if it says nothing."""
    listed = found[name] = [] if found[name] is None else found[name]
    if not isinstance(listed, list | tuple) or len(listed) not in (0, len(found["losses"])):
        raise InvalidSetting(f"a trial has one of its {name} per loss, not {shown(listed)}")
    return list(listed)
