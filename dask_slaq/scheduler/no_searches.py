"""Answers about searches on a scheduler that has had none: nothing that they need is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from dask_slaq.core.later import Absent

__all__ = ["no_searches"]

#: Methods of `Searches` that do nothing, or return None.
NOTHING = (
    *("describe", "around", "change", "submitted", "claim", "mark", "leave", "message"),
    *("transition", "seceded", "job_reported", "end_model", "end", "release_all", "look"),
    *("log_event", "warn_of_stray", "forget_worker", "forget_client"),
)


def no_searches() -> Any:
    """Return the answers of `Searches` until a first search begins."""
    return Absent(
        {
            "running": {},
            "states": (),
            "draining": (),
            "check": _check,
            "train_on": _train_on,
            "read_events": _read_events,
        },
        **dict.fromkeys(NOTHING),
        names=[],
        jobs_of=[],
        table=([], None),
        trials=[],
        goes_on=False,
        is_open=False,
        has_mark=True,  # marks are not waited for
    )


def _check(name: str, settings: Mapping[str, Any]) -> NoReturn:
    from dask_slaq.core.search_settings import no_search

    raise no_search(name, settings)


def _train_on(run: str, *args: Any) -> NoReturn:
    from dask_slaq.core.search_settings import search_is_over

    raise search_is_over()


def _read_events(run: str, after: int) -> dict[str, Any]:
    return {"events": [], "after": after, "dropped": 0, "over": True}
