"""Data files opened, and what is wrong in one, and where."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import fsspec
from fsspec.utils import infer_compression

__all__ = ["DataFileError", "decompressed"]


class DataFileError(ValueError):
    """A data file is truncated or malformed.

    Parameters
    ----------
    path : str
        The file.
    what : str
        What is wrong.
    line : int, optional
        Line of a text file, from 1.
    """

    def __init__(self, path: str, what: str, line: int | None = None) -> None:
        super().__init__(path, what, line)
        self.path, self.what, self.line = path, what, line

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}, line {self.line}"
        return f"{where}: {self.what}"


@contextmanager
def decompressed(path: str) -> Iterator[Any]:
    """Return the bytes of a file, those inside it if its name says that it is compressed.

    Raises
    ------
    FileNotFoundError
    DataFileError
        In the block too: it cannot be decompressed, or ends too early for that.
    """
    try:
        with fsspec.open(path, "rb", compression="infer") as file:
            yield file
    except FileNotFoundError:
        raise
    # What gzip, bz2 and lzma raise, which is also what reading from a broken disk raises.
    except (EOFError, OSError, zlib.error) as error:
        if not infer_compression(path):
            raise
        raise DataFileError(path, f"cannot be decompressed: {error}") from error
