"""Calls of functions of the package, counted exactly: unlike times, on any machine alike."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import dask_slaq

_HOME = Path(dask_slaq.__file__).parent


class Calls:
    """Context manager that counts calls of functions of `dask_slaq` in this thread, by function.

    A generator counts each time it goes on, and a comprehension where Python makes a function of it
    (before 3.12).
    """

    def __init__(self) -> None:
        self._codes: Counter[CodeType] = Counter()

    def __enter__(self) -> Calls:
        sys.setprofile(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)

    def run(self, epoch: Callable[[], object]) -> None:
        """Run an epoch, which is not counted."""
        sys.setprofile(None)
        epoch()
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(_HOME)):
            self._codes[frame.f_code] += 1

    def by_function(self) -> Counter[str]:
        """Return the numbers of calls by module and qualified name."""
        found: Counter[str] = Counter()
        for code, count in self._codes.items():
            module = Path(code.co_filename).relative_to(_HOME).with_suffix("").as_posix()
            found[f"{module}: {getattr(code, 'co_qualname', code.co_name)}"] += count
        return found
