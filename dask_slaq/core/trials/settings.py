"""Settings of a search, and their check."""

from __future__ import annotations

from dataclasses import dataclass

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_number, shown

__all__ = ["GOALS", "SearchSettings"]

#: What a search is for: its best model soon, or all models soon.
GOALS = ("best", "all")


@dataclass(frozen=True)
class SearchSettings:
    """Settings of a search; see `dask_slaq.search`.

    Raises
    ------
    InvalidSetting
    """

    goal: str = "best"
    steps: int | None = None
    maximize: bool = False
    prune: bool = False
    max_waiting: int = 100

    def __post_init__(self) -> None:
        if self.goal not in GOALS:
            allowed = ", ".join(GOALS)
            raise InvalidSetting(f"goal must be one of {allowed}, not {shown(self.goal)}")
        if self.steps is not None and not _is_count(self.steps, 1):
            raise InvalidSetting(
                f"steps must be a number of reports >= 1, or None, not {shown(self.steps)}"
            )
        for name in ("maximize", "prune"):
            if not isinstance(value := getattr(self, name), bool):
                raise InvalidSetting(f"{name} must be True or False, not {shown(value)}")
        if not _is_count(self.max_waiting, 0):
            raise InvalidSetting(
                f"max_waiting must be a number of models >= 0, not {shown(self.max_waiting)}"
            )


def _is_count(value: object, least: int) -> bool:
    return is_number(value) and least <= value == int(value)  # type: ignore[operator, call-overload]
