"""Answers about searches on a scheduler that has had none: nothing that they need is loaded."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    from dask_slaq.scheduler.trials import RunningSearch, Searches

__all__ = ["AnySearches", "NoSearches"]

AnySearches: TypeAlias = "Searches | NoSearches"


class NoSearches:
    """The answers of `Searches` until a first search begins."""

    def __init__(self) -> None:
        self.running: Mapping[str, RunningSearch] = {}
        self.states: Any = ()
        self.draining: Collection[str] = ()

    def nothing(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""

    describe = around = nothing
    change = submitted = claim = mark = leave = message = transition = seceded = nothing
    job_reported = end_model = end = release_all = nothing
    look = log_event = forget_worker = forget_client = nothing

    def names(self) -> list[str]:
        """Return the names of the searches that run or ended lately: none."""
        return []

    def jobs_of(self, name: str) -> list[str]:
        """Return the jobs that are models of a search: none."""
        return []

    def table(self, name: str, *, curves: bool = True) -> tuple[list[dict[str, Any]], None]:
        """Return the trials of a search and its settings: it is not known."""
        return [], None

    def trials(self, run: str, *, curves: bool = False) -> list[dict[str, Any]]:
        """Return the trials of a search: none."""
        return []

    def read_events(self, run: str, after: int) -> dict[str, Any]:
        """Return what happened in a search that is followed: it is over."""
        return {"events": [], "after": after, "dropped": 0, "over": True}

    def train_on(self, run: str, *args: Any) -> NoReturn:
        """Raise `SlaqError`: a model is trained on while its search runs."""
        from dask_slaq.core.search_settings import search_is_over

        raise search_is_over()

    def check(self, name: str, settings: Mapping[str, Any]) -> NoReturn:
        """Raise `InvalidSetting`: a job is not a search that may change settings."""
        from dask_slaq.core.search_settings import no_search

        raise no_search(name, settings)

    def goes_on(self, name: str) -> bool:
        """Return whether a search whose client has left goes on."""
        return False

    def is_open(self, run: str) -> bool:
        """Return whether the block `run` of a search was not left yet."""
        return False

    def has_mark(self, run: str, number: Any) -> bool:
        """Return whether a running search has a mark; others are not waited for."""
        return True
