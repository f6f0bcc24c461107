"""Tables of what to persist, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dask.utils import format_bytes

from dask_slaq.cli.text import aligned, printable
from dask_slaq.persisting.choosing import names_of

__all__ = ["LEGEND", "lines_of"]

#: Maximum number of layers in a table, and of characters in a layer's name.
MOST_LAYERS, WIDTH = 12, 40
HEADING = ("layer", "times", "repeats/s", "saves/s", "size", "")
LEGEND = (
    "layer: the name of a Dask collection (x.name of an array, df._name); times: that each part "
    "was computed;\nrepeats: core-seconds of all but the first time; saves: if it alone is "
    "persisted, with what only it needs."
)


def lines_of(found: Mapping[str, Any]) -> list[str]:
    """Return the lines of a table of what to persist, as of `choosing.advise`."""
    shown = [x for k, x in enumerate(found["layers"]) if k < MOST_LAYERS or x["persist"]]
    cells = [list(HEADING)]
    cells += [
        [
            _shorten(layer["layer"]),
            f"{layer['computed'] / layer['keys']:.1f}",
            f"{layer['seconds']:.2f}",
            f"{layer['saves']:.2f}",
            format_bytes(layer["bytes"]),
            "persist" if layer["persist"] else "",
        ]
        for layer in shown
    ]
    lines = [*aligned(cells, left=(0, 5))]
    if more := len(found["layers"]) - len(shown):
        lines.append(f"and {more} more, see layers")
    chosen = [_shorten(x["layer"]) for x in found["layers"] if x["persist"]]
    limit = format_bytes(int(found["memory_limit"]))
    lines += [
        "",
        f"Persist {', '.join(chosen)} ({format_bytes(found['bytes'])} of {limit}): saves about "
        f"{found['saves']:.2f} of {found['seconds']:.2f} core-seconds that repeats took."
        if chosen
        else f"No result that saves anything fits in {limit}.",
        "",
    ]
    return lines


def _shorten(layer: str) -> str:
    name = printable(names_of(layer)[2])
    return name if len(name) <= WIDTH else f"...{name[-WIDTH:]}"
