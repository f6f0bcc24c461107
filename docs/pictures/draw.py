"""Draw the diagrams of the documentation: ``python docs/pictures/draw.py`` writes them as SVG.

They need no font, program or library, and are legible on light and on dark pages.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
INK, SOFT, LINE = "#262326", "#5c5a5c", "#8b898b"
FILLS = {"plain": "#f2f1f2", "yours": "#fff1cc", "ours": "#ffd9d8", "core": "#f9c6d5"}
ORANGE, PINK = "#e8590c", "#c2255c"


class Picture:
    """Lines of an SVG picture."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" '
            'font-family="Helvetica, Arial, sans-serif" font-size="15">',
            f"<title>{escape(title)}</title>",
            '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
            f'markerHeight="7" orient="auto"><path d="M0 0L10 5L0 10z" fill="{SOFT}"/></marker>'
            "</defs>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        ]

    def text(self, x: float, y: float, words: str, **style: object) -> None:
        """Write one line of text, centered at `x` unless ``anchor`` says otherwise."""
        given = {"anchor": "middle", "fill": INK, **style}
        given["text-anchor"] = given.pop("anchor")
        said = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in given.items())
        self.lines.append(f'<text x="{x:g}" y="{y:g}"{said}>{escape(words)}</text>')

    def box(self, x: float, y: float, w: float, h: float, words: str, kind: str = "plain") -> None:
        """Draw a box; the first line of `words` is bold, the others explain."""
        self.lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="6" '
            f'fill="{FILLS[kind]}" stroke="{LINE}"/>'
        )
        title, *others = words.split("\n")
        top = y + h / 2 - 9 * len(others) + 5
        self.text(x + w / 2, top, title, font_weight="bold")
        for k, line in enumerate(others, 1):
            self.text(x + w / 2, top + 19 * k, line, fill=SOFT, font_size=13)

    def arrow(self, *points: tuple[float, float], words: str = "", dy: float = -7) -> None:
        """Draw an arrow through points, with words at the middle of its first part."""
        path = " ".join(f"{x:g},{y:g}" for x, y in points)
        self.lines.append(
            f'<polyline points="{path}" fill="none" stroke="{SOFT}" stroke-width="1.6" '
            'marker-end="url(#head)"/>'
        )
        if words:
            (x0, y0), (x1, y1) = points[:2]
            self.text((x0 + x1) / 2, (y0 + y1) / 2 + dy, words, fill=SOFT, font_size=13)

    def area(self, x: float, y: float, w: float, h: float, words: str) -> None:
        """Draw a dashed frame with a caption at its upper left corner."""
        self.lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" rx="8" fill="none" '
            f'stroke="{LINE}" stroke-dasharray="5 4"/>'
        )
        self.text(x + 12, y + 21, words, anchor="start", fill=SOFT, font_size=13)

    def curve(self, points: list[tuple[float, float]], color: str, dashed: bool = False) -> None:
        """Draw a line through points."""
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dashes = ' stroke-dasharray="6 5"' if dashed else ""
        self.lines.append(
            f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2.6"{dashes}/>'
        )

    def bar(self, x: float, y: float, w: float, h: float, color: str) -> None:
        """Draw a filled rectangle."""
        self.lines.append(
            f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{color}" '
            'stroke="#ffffff" stroke-width="2"/>'
        )

    def __str__(self) -> str:
        return "\n".join([*self.lines, "</svg>", ""])


def idea() -> Picture:
    """Draw two loss curves, and the threads that their jobs get."""
    p = Picture(760, 330, "Threads go to the job whose loss will fall most")
    p.text(205, 32, "Loss of two jobs", font_weight="bold")
    p.arrow((40, 290), (390, 290))
    p.arrow((40, 290), (40, 50))
    p.text(372, 312, "time", fill=SOFT, font_size=13)
    p.text(245, 312, "now", fill=SOFT, font_size=13)
    p.curve([(245, 55), (245, 290)], "#bbb9bb", dashed=True)

    def old(x: float) -> float:
        return 250 - 170 * math.exp(-(x - 40) / 38)

    def new(x: float) -> float:
        return 262 - 185 * math.exp(-(x - 175) / 75)

    for fall, color, begin in ((old, PINK, 40), (new, ORANGE, 175)):
        p.curve([(x, fall(x)) for x in range(begin, 246, 3)], color)
        p.curve([(x, fall(x)) for x in range(245, 376, 3)], color, dashed=True)
    p.text(86, 168, "began long ago", anchor="start", fill=PINK, font_size=14)
    p.text(262, 130, "has just begun:", anchor="start", fill=ORANGE, font_size=14)
    p.text(262, 148, "most left to fall", anchor="start", fill=ORANGE, font_size=14)

    p.text(590, 32, "Eight threads", font_weight="bold")
    for y, name, many in ((80, "fair", 4), (180, "max-total", 6)):
        p.text(438, y + 33, name, anchor="start", fill=INK)
        for k in range(8):
            p.bar(522 + 26 * k, y, 26, 54, ORANGE if k < many else PINK)
    p.text(590, 268, "The converged job keeps its floor:", fill=SOFT, font_size=13)
    p.text(590, 287, "half of its fair share.", fill=SOFT, font_size=13)
    return p


def report() -> Picture:
    """Draw the way of a loss from the training loop to the engine."""
    p = Picture(760, 250, "The way of a report")
    p.area(15, 20, 350, 210, "your program")
    p.area(435, 20, 310, 210, "scheduler")
    p.box(28, 60, 142, 66, "training loop\nyours, or a library's", "yours")
    p.box(215, 60, 135, 66, "report\nchecks, queues", "ours")
    p.box(450, 60, 125, 66, "check\ndrops bad ones", "ours")
    p.box(605, 60, 125, 66, "engine\nloss curve", "core")
    p.arrow((170, 93), (215, 93), words="loss", dy=-9)
    p.arrow((350, 93), (450, 93), words="message", dy=-9)
    p.arrow((575, 93), (605, 93))
    p.text(190, 170, "The loop does not wait: report returns", fill=SOFT, font_size=13)
    p.text(190, 188, "in microseconds, and training goes on.", fill=SOFT, font_size=13)
    p.box(605, 165, 125, 48, "next decision", "plain")
    p.arrow((667, 126), (667, 165))
    p.text(520, 186, "once per epoch,", fill=SOFT, font_size=13)
    p.text(520, 204, "1 s by default", fill=SOFT, font_size=13)
    return p


def decision() -> Picture:
    """Draw the way from loss curves and task times to grants."""
    p = Picture(760, 300, "The way of a decision")
    p.box(20, 30, 150, 70, "loss curves\nreports so far")
    p.box(20, 190, 150, 70, "task times\ncore-seconds")
    p.box(210, 30, 160, 70, "forecast\nhow far it will fall", "core")
    p.box(210, 190, 160, 70, "speed\niterations on n threads", "core")
    p.box(410, 110, 140, 70, "gain\nfall per thread", "core")
    p.box(590, 20, 150, 70, "policy\nthreads, and an order", "core")
    p.box(590, 110, 150, 70, "placement\nwhich workers", "core")
    p.box(590, 200, 150, 70, "grants\nuntil the next epoch", "ours")
    p.arrow((170, 65), (210, 65))
    p.arrow((170, 225), (210, 225))
    p.arrow((370, 65), (480, 65), (480, 110))
    p.arrow((370, 225), (480, 225), (480, 180))
    p.arrow((550, 145), (568, 145), (568, 55), (590, 55))
    p.arrow((665, 90), (665, 110))
    p.arrow((665, 180), (665, 200))
    p.text(295, 150, "all jobs at once", fill=SOFT, font_size=13)
    return p


def task() -> Picture:
    """Draw the way of a task from its client to a worker's thread."""
    p = Picture(760, 300, "The way of a task")
    p.box(15, 40, 120, 76, "job block\nsubmits tasks", "yours")
    p.area(170, 12, 385, 216, "scheduler")
    p.box(190, 40, 150, 34, "pool of job a", "ours")
    p.box(190, 86, 150, 34, "pool of job b", "ours")
    p.box(190, 178, 150, 34, "unowned tasks", "plain")
    p.text(265, 142, "held until a thread", fill=SOFT, font_size=13)
    p.text(265, 160, "is free for their job", fill=SOFT, font_size=13)
    p.box(390, 62, 150, 82, "dispatch\nwhich job is first,\nwhich of its tasks", "core")
    p.box(595, 40, 150, 126, "worker\na thread takes it\nand is not\ninterrupted")
    p.arrow((135, 60), (190, 60))
    p.arrow((135, 100), (190, 100))
    p.arrow((340, 57), (365, 57), (365, 92), (390, 92))
    p.arrow((340, 103), (390, 103))
    p.arrow((340, 195), (365, 195), (365, 120), (390, 120))
    p.arrow((540, 103), (595, 103))
    p.arrow((670, 166), (670, 264), (465, 264), (465, 144))
    p.text(570, 283, "done: charged to its job; the thread is free", fill=SOFT, font_size=13)
    return p


def drawn() -> Iterator[tuple[str, str]]:
    """Yield the name and text of each file."""
    for draw in (idea, report, decision, task):
        yield f"{draw.__name__}.svg", str(draw())


def main() -> None:
    for name, text in drawn():
        (HERE / name).write_text(text)


if __name__ == "__main__":
    main()
