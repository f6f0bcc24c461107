"""Colors of jobs, the same in all plots and on all pages of a scheduler."""

from __future__ import annotations

import colorsys
from collections import OrderedDict
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["OTHERS", "UNOWNED", "color_of"]

#: Colors of tasks outside jobs, and of all jobs together that are not shown one by one.
UNOWNED, OTHERS = "#cccccc", "#8c8c8c"

#: Number of jobs whose colors are remembered.
REMEMBERED = 1000
#: Part of the circle of hues from one job to the next: successive ones differ much, none recurs.
STEP = (5**0.5 - 1) / 2
#: Lightness and saturation, in turns.
TONES = ((0.45, 0.75), (0.65, 0.6), (0.32, 0.6))


class Colors:
    """Colors by order of appearance, which keeps them further apart than a hash of the names."""

    def __init__(self) -> None:
        self._colors: OrderedDict[str, str] = OrderedDict()
        self._number = count()

    def of(self, name: str) -> str:
        """Return the color of a job, as ``#rrggbb``."""
        if name in self._colors:
            self._colors.move_to_end(name)
            return self._colors[name]
        number = next(self._number)
        lightness, saturation = TONES[number % len(TONES)]
        rgb = colorsys.hls_to_rgb(0.58 + number * STEP, lightness, saturation)
        self._colors[name] = "#" + "".join(f"{round(255 * part):02x}" for part in rgb)
        if len(self._colors) > REMEMBERED:
            self._colors.popitem(last=False)
        return self._colors[name]


_of_schedulers: WeakKeyDictionary[Scheduler, Colors] = WeakKeyDictionary()


def color_of(scheduler: Scheduler, name: str) -> str:
    """Return the color of a job, or pool of unowned tasks, on the board of a scheduler."""
    if name.startswith("other:"):
        return UNOWNED
    colors = _of_schedulers.get(scheduler)
    if colors is None:
        colors = _of_schedulers[scheduler] = Colors()
    return colors.of(name)
