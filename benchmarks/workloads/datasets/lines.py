"""Text files in partitions by byte ranges: each one holds the lines that begin inside its range.

A file is not looked at before a partition of it is computed, but for its size. Paths are those of
fsspec: local ones or URLs. A compressed file cannot be entered in its middle and is one partition.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from operator import getitem
from typing import Any, NamedTuple, TypeAlias

import fsspec
import numpy as np
from dask import array as da
from dask.base import tokenize
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import parse_bytes
from fsspec.core import get_fs_token_paths
from fsspec.utils import infer_compression, read_block

from benchmarks.workloads.datasets.errors import DataFileError, decompressed

__all__ = [
    "ByteRange",
    "Paths",
    "check_finite",
    "check_plain",
    "columns_of",
    "file_names",
    "parse",
    "ranges",
    "shown",
    "wrong_number",
]

#: What a reader of lines may raise for what is in them; OverflowError for a huge index.
REFUSED = (ValueError, OverflowError)
NUMBER = re.compile(rb"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
PLAIN = b"0123456789+-.eE:, \t\r\n"
#: Bytes read at a time where lines are counted.
STEP = 2**24


#: One path or several, as text or `os.PathLike`.
Paths: TypeAlias = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class ByteRange(NamedTuple):
    """Where in which file.

    Attributes
    ----------
    path : str
    offset : int
        In bytes, from the start of the file.
    size : int or None
        In bytes; None reads all of a compressed file.
    """

    path: str
    offset: int
    size: int | None


def file_names(paths: Paths) -> list[str]:
    """Return the files that a path, a pattern with ``*`` or a list of paths means.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
    names: list[str] = []
    for one in map(os.fspath, given):
        fs, _, found = get_fs_token_paths(one)
        if not found or not all(fs.exists(name) for name in found):
            raise FileNotFoundError(f"no such file: {one}")
        names += [fs.unstrip_protocol(name) if "://" in one else name for name in found]
    return names


def ranges(paths: Paths, blocksize: str | int) -> list[ByteRange]:
    """Return ranges of at most `blocksize` bytes that cover the files at `paths`.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ValueError
        `blocksize` is not positive.
    DataFileError
        A file is empty.
    """
    step = parse_bytes(blocksize)
    if step < 1:
        raise ValueError(f"blocksize must be at least 1 byte, not {blocksize!r}")
    found = []
    for path in file_names(paths):
        fs, name = fsspec.core.url_to_fs(path)
        size = fs.size(name)
        if not size:
            raise DataFileError(path, "the file is empty")
        if infer_compression(path):
            found.append(ByteRange(path, 0, None))
        else:
            found += [ByteRange(path, at, min(step, size - at)) for at in range(0, size, step)]
    return found


def parse(
    where: ByteRange,
    read: Callable[..., Any],
    explain: Callable[..., str | None],
    *arguments: Any,
) -> Any:
    """``read(text, *arguments)`` of the lines of a range.

    Parameters
    ----------
    where : ByteRange
    read : callable
        Takes whole lines, as bytes; raises one of `REFUSED` if something is wrong with one of them.
    explain : callable
        ``explain(line, *arguments)`` says what is wrong with a line that `read` refuses, or None.
    *arguments
        For both.

    Raises
    ------
    DataFileError
        With the number of the first line that is wrong.
    """
    text = _text(where)
    try:
        return read(text, *arguments)
    except REFUSED as error:
        lines = text.split(b"\n")
        number = _first_refused(lines, lambda some: read(some, *arguments))
        what = explain(lines[number], *arguments) or f"the line cannot be read: {error}"
        raise DataFileError(where.path, what, _lines_before(where) + number + 1) from error


def columns_of(parsed: Sequence[Delayed], item: int, n_columns: int | None, meta: Any) -> da.Array:
    """Return a dask array of one item of each parsed tuple, with an unknown number of rows.

    Parameters
    ----------
    parsed : sequence of Delayed
        One for each partition.
    item : int
        Which item.
    n_columns : int or None
        None for one dimension.
    meta : array or sparse matrix
        An empty block.
    """
    name = f"rows-{item}-{tokenize([one.key for one in parsed])}"
    tail, widths = ((), ()) if n_columns is None else ((0,), ((n_columns,),))
    tasks = {(name, i, *tail): (getitem, one.key, item) for i, one in enumerate(parsed)}
    graph = HighLevelGraph.from_collections(name, tasks, dependencies=list(parsed))
    return da.Array(graph, name, ((np.nan,) * len(parsed), *widths), meta=meta)


def wrong_number(text: bytes, dtype: Any = "float64") -> str:
    """Return what is wrong with `text` as a decimal number of this `dtype`, "" if nothing is."""
    if not NUMBER.fullmatch(text):
        return "not a number"
    with np.errstate(over="ignore"):
        finite = np.isfinite(np.float64(text).astype(dtype))
    return "" if finite else f"too large for {dtype}"


def check_plain(text: bytes) -> None:
    """Raise ValueError if there are other characters than those of numbers, ``:,`` and blanks.

    What parses the numbers takes more for one: Python allows ``1_0``, and form feeds around it.
    """
    if text.translate(None, PLAIN):
        raise ValueError("other characters than those of decimal numbers")


def check_finite(*arrays: np.ndarray) -> None:
    """Raise ValueError if a number is not finite, so large or so small that it became so."""
    if not all(np.isfinite(array).all() for array in arrays):
        raise ValueError("a number is too large")


def shown(text: bytes) -> str:
    """Show what stands in a file, cut if it is long."""
    words = repr(text.decode(errors="replace"))
    return words if len(words) <= 60 else words[:57] + "..."


def _first_refused(lines: list[bytes], read: Callable[[bytes], Any]) -> int:
    """Find by halving the number of the first line that `read` refuses, if any."""
    low, high = 0, len(lines)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            read(b"\n".join(lines[low:middle]))
        except REFUSED:
            high = middle
        else:
            low = middle
    return low


def _text(where: ByteRange) -> bytes:
    with decompressed(where.path) as file:
        if where.size is None:
            return bytes(file.read())
        return bytes(read_block(file, where.offset, where.size, b"\n"))


def _lines_before(where: ByteRange) -> int:
    """Lines of the file before those of the range; reads it from the start."""
    if not where.offset:
        return 0
    # The line that the range begins in belongs to the range before.
    count, left = 1, where.offset
    with fsspec.open(where.path, "rb") as file:
        while left and (text := file.read(min(left, STEP))):
            count, left = count + text.count(b"\n"), left - len(text)
    return count
