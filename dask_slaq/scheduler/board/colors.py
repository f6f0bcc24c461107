"""Colors of jobs, the same in all plots and on all pages of a scheduler."""

from __future__ import annotations

import colorsys
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from distributed import Scheduler

#: Colors of tasks outside jobs, and of all jobs together that are not shown one by one.
UNOWNED, OTHERS = "#cccccc", "#8c8c8c"

#: Number of jobs whose colors are remembered.
REMEMBERED = 1000
#: Part of the circle of hues from one job to the next: successive ones differ much, none recurs.
STEP = (5**0.5 - 1) / 2
#: Lightness and saturation, in turns.
TONES = ((0.45, 0.75), (0.65, 0.6), (0.32, 0.6))


def _colors() -> Callable[[str], str]:
    """Return colors by order of appearance, which are further apart than by hashes of names."""
    numbers = count()

    @lru_cache(REMEMBERED)
    def of(name: str) -> str:
        number = next(numbers)
        lightness, saturation = TONES[number % len(TONES)]
        rgb = colorsys.hls_to_rgb(0.58 + number * STEP, lightness, saturation)
        return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)

    return of


_of_schedulers: WeakKeyDictionary[Scheduler, Callable[[str], str]] = WeakKeyDictionary()


def color_of(scheduler: Scheduler, name: str) -> str:
    """Return the color of a job, or pool of unowned tasks, on the board of a scheduler."""
    if name.startswith("other:"):
        return UNOWNED
    colors = _of_schedulers.get(scheduler)
    if colors is None:
        colors = _of_schedulers[scheduler] = _colors()
    return colors(name)
