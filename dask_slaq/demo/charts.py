"""Charts as inline SVG without a plotting library, for a report that only needs a browser."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _LEFT, _RIGHT, _TOP, _BOTTOM = 560, 62, 12, 12, 44


@dataclass(frozen=True)
class Axis:
    """Axis up to `stop`: linear from 0, or logarithmic from `start`, or of named `rows`."""

    label: str
    stop: float
    start: float = 0.0
    rows: Sequence[str] = ()

    def at(self, value: float) -> float:
        """Return the place of a value, as a fraction of the axis."""
        if self.start:
            return math.log(max(value, self.start) / self.start) / math.log(self.stop / self.start)
        return value / self.stop

    def ticks(self) -> list[tuple[float, str]]:
        """Return the values to mark, and their labels."""
        if self.rows:
            return [(number + 0.5, name) for number, name in enumerate(self.rows)]
        if self.start:
            values = [m * 10.0**decade for decade in range(-6, 6) for m in (1, 2, 5)]
            return [(v, f"{v:g}") for v in values if self.start <= v <= self.stop]
        step = 10.0 ** math.floor(math.log10(self.stop / 5))
        step *= next(m for m in (1, 2, 5, 10) if self.stop / (step * m) <= 8)
        return [(i * step, f"{i * step:g}") for i in range(int(self.stop / step + 1e-9) + 1)]


class Chart:
    """Chart of `height` pixels with axes, and marks drawn in the order in which they are added."""

    def __init__(self, x: Axis, y: Axis, height: int = 270) -> None:
        self.x, self.y, self.height = x, y, height
        self._marks: list[str] = []
        self._draw_axes()

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel coordinates of the point `x`, `y`."""
        across, down = _WIDTH - _LEFT - _RIGHT, self.height - _TOP - _BOTTOM
        return round(_LEFT + across * self.x.at(x), 1), round(_TOP + down * (1 - self.y.at(y)), 1)

    def line(
        self, points: Iterable[tuple[float, float]], color: str, name: str, width: float = 1.8
    ) -> None:
        """Draw a line through `points` in a `color` and `width`, with `name` as tooltip."""
        path = " ".join(f"{x},{y}" for x, y in (self.at(*point) for point in points))
        self._marks.append(
            f'<polyline points="{path}" stroke="{color}" stroke-width="{width}">'
            f"<title>{escape(name)}</title></polyline>"
        )

    def box(self, start: float, stop: float, row: int, color: str, name: str) -> None:
        """Fill a `row` from `start` to `stop` with a `color`, with `name` as tooltip."""
        (left, top), (right, bottom) = self.at(start, row + 0.9), self.at(stop, row + 0.1)
        self._marks.append(
            f'<rect x="{left}" y="{top}" width="{max(right - left, 0.3):.1f}" '
            f'height="{bottom - top:.1f}" fill="{color}"><title>{escape(name)}</title></rect>'
        )

    def svg(self) -> str:
        """Return the chart as an ``<svg>`` element."""
        marks = "".join(self._marks)
        return f'<svg viewBox="0 0 {_WIDTH} {self.height}" role="img">{marks}</svg>'

    def _draw_axes(self) -> None:
        left, bottom, right = _LEFT, self.height - _BOTTOM, _WIDTH - _RIGHT
        for value, text in self.x.ticks():
            x, _ = self.at(value, self.y.stop)
            self._marks.append(
                f'<path d="M{x} {_TOP}V{bottom}" class="grid"/>'
                f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{text}</text>'
            )
        for value, text in self.y.ticks():
            _, y = self.at(0, value)
            grid = "" if self.y.rows else f'<path d="M{left} {y}H{right}" class="grid"/>'
            label = f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{text}</text>'
            self._marks.append(grid + label)
        self._marks.append(
            f'<text x="{(left + right) / 2}" y="{self.height - 8}" text-anchor="middle">'
            f'{escape(self.x.label)}</text><text transform="translate(14 {(_TOP + bottom) / 2}) '
            f'rotate(-90)" text-anchor="middle">{escape(self.y.label)}</text>'
        )
