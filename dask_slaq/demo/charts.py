"""Charts as inline SVG without a plotting library, for a report that only needs a browser."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

#: Colours that are distinct on white, also for most colour-blind readers.
COLORS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9",
    "#d55e00", "#7a5195", "#8c8c00", "#555555", "#b07d62",
)  # fmt: skip
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 12, 12, 44

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """Linear axis from 0.

    Attributes
    ----------
    label : str
        Quantity and unit.
    stop : float
        Largest value, > 0.
    """

    label: str
    stop: float

    def ticks(self) -> list[float]:
        """Return about five round values from 0 to `stop`."""
        step = 10.0 ** math.floor(math.log10(self.stop / 5))
        step *= next(m for m in (1, 2, 5, 10) if self.stop / (step * m) <= 6)
        return [i * step for i in range(int(self.stop / step + 1e-9) + 1)]


class Chart:
    """Chart with axes, and marks drawn over them in the order in which they are added.

    Parameters
    ----------
    title : str
        Label for screen readers.
    x, y : Axis
    width, height : int
        Pixels.
    """

    def __init__(self, title: str, x: Axis, y: Axis, width: int = 560, height: int = 280) -> None:
        self.title = title
        self.x, self.y = x, y
        self.width, self.height = width, height
        self._marks: list[str] = []

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel coordinates of a point.

        Parameters
        ----------
        x, y : float
            In units of the axes.
        """
        across = self.width - _LEFT - _RIGHT
        down = self.height - _TOP - _BOTTOM
        return (
            round(_LEFT + across * x / self.x.stop, 1),
            round(_TOP + down * (1 - y / self.y.stop), 1),
        )

    def line(self, points: Points, color: str, name: str) -> None:
        """Add a polyline.

        Parameters
        ----------
        points : sequence of (float, float)
            In units of the axes.
        color : str
        name : str
            Tooltip.
        """
        self._marks.append(
            f'<polyline points="{self._path(points)}" fill="none" stroke="{color}" '
            f'stroke-width="1.8" stroke-linejoin="round"><title>{escape(name)}</title></polyline>'
        )

    def area(self, upper: Points, lower: Points, color: str, name: str) -> None:
        """Add the area between two lines.

        Parameters
        ----------
        upper, lower : sequence of (float, float)
            In units of the axes.
        color : str
        name : str
            Tooltip.
        """
        outline = [*upper, *reversed(lower)]
        self._marks.append(
            f'<polygon points="{self._path(outline)}" fill="{color}" stroke="none">'
            f"<title>{escape(name)}</title></polygon>"
        )

    def rule(self, y: float, text: str) -> None:
        """Add a dashed horizontal line with a label.

        Parameters
        ----------
        y : float
            In units of the axis.
        text : str
            Label.
        """
        left, height = self.at(0, y)
        right, _ = self.at(self.x.stop, y)
        self._marks.append(
            f'<line x1="{left}" x2="{right}" y1="{height}" y2="{height}" class="rule"/>'
            f'<text x="{right}" y="{height - 4}" text-anchor="end" class="note">'
            f"{escape(text)}</text>"
        )

    def svg(self) -> str:
        """Return the chart as an ``<svg>`` element."""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(self.title)}">{"".join(self._axes())}{"".join(self._marks)}</svg>'
        )

    def _path(self, points: Iterable[tuple[float, float]]) -> str:
        return " ".join(f"{x},{y}" for x, y in (self.at(*point) for point in points))

    def _axes(self) -> Iterable[str]:
        left, bottom = self.at(0, 0)
        right, top = self.at(self.x.stop, self.y.stop)
        for value in self.x.ticks():
            x, _ = self.at(value, 0)
            yield f'<line x1="{x}" x2="{x}" y1="{top}" y2="{bottom}" class="grid"/>'
            yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{value:g}</text>'
        for value in self.y.ticks():
            _, y = self.at(0, value)
            yield f'<line x1="{left}" x2="{right}" y1="{y}" y2="{y}" class="grid"/>'
            yield f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{value:g}</text>'
        middle = (left + right) / 2
        yield (
            f'<text x="{middle}" y="{self.height - 8}" text-anchor="middle">'
            f"{escape(self.x.label)}</text>"
        )
        yield (
            f'<text transform="translate(14 {(top + bottom) / 2}) rotate(-90)" '
            f'text-anchor="middle">{escape(self.y.label)}</text>'
        )


def bars(rows: Sequence[tuple[str, Sequence[float | None]]], names: Sequence[str]) -> str:
    """Return horizontal bars, one group per row and one bar per name, as an ``<svg>`` element.

    Parameters
    ----------
    rows : sequence of (str, sequence of float or None)
        Label of each group and its values in seconds. No bar is drawn for None.
    names : sequence of str
        Names of the values of a group, shown as tooltips.
    """
    thick, gap, left, width = 11, 12, 150, 640
    longest = max((v for _, values in rows for v in values if v is not None), default=1.0) or 1.0
    parts, y = [], 4
    for label, values in rows:
        middle = y + thick * len(values) / 2 + 4
        parts.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end">{escape(label)}</text>')
        for number, value in enumerate(values):
            if value is not None:
                length = round((width - left - 60) * value / longest, 1)
                parts.append(
                    f'<rect x="{left}" y="{y}" width="{length}" height="{thick - 1}" '
                    f'fill="{color(number)}"><title>{escape(names[number])}</title></rect>'
                    f'<text x="{left + length + 5}" y="{y + thick - 2}" class="note">'
                    f"{value:.1f} s</text>"
                )
            y += thick
        y += gap
    return f'<svg viewBox="0 0 {width} {y}" role="img">{"".join(parts)}</svg>'


def legend(names: Sequence[str]) -> str:
    """Return an HTML legend with a coloured square per name."""
    items = (
        f'<span><i style="background:{color(number)}"></i>{escape(name)}</span>'
        for number, name in enumerate(names)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def color(number: int) -> str:
    """Return the colour of the n-th series, from 0."""
    return COLORS[number % len(COLORS)]
