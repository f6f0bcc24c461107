"""IDX files, the form of MNIST: a header with sizes, then numbers, most significant byte first."""

from __future__ import annotations

import math
import os
from typing import Any, NamedTuple

import fsspec
import numpy as np
from dask import array as da
from dask.delayed import delayed
from dask.utils import parse_bytes
from fsspec.utils import infer_compression

from benchmarks.workloads.datasets.errors import DataFileError, decompressed

__all__ = ["read_idx"]

#: Third byte of a file: the type of its numbers.
TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


class Header(NamedTuple):
    """What the first bytes say.

    Attributes
    ----------
    dtype : str
    shape : tuple of int
    start : int
        Byte at which the numbers begin.
    """

    dtype: str
    shape: tuple[int, ...]
    start: int

    @property
    def row(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * np.dtype(self.dtype).itemsize


def read_idx(
    images: str | os.PathLike[str],
    labels: str | os.PathLike[str] | None = None,
    *,
    blocksize: str | int = "64MiB",
) -> Any:
    """IDX files, such as those of MNIST, as lazy dask arrays.

    Parameters
    ----------
    images : path
        A file; local or a URL. One that is compressed (.gz) is read as one partition; rechunk it.
    labels : path, optional
        The file with as many labels.
    blocksize : str or int
        Bytes of a partition.

    Returns
    -------
    X : dask array, (n_rows, n_columns)
        The numbers of an image in one row, in the type of the file: pixels from 0 to 255.
    y : dask array, (n_rows,)
        Only with `labels`; split like `X`.

    Raises
    ------
    FileNotFoundError
    DataFileError
        A file is no IDX file, or is not as long as its header says (found when it is computed if it
        is compressed), or there are not as many labels as images.
    ValueError
        `blocksize` is not positive.
    """
    X = _rows(os.fspath(images), blocksize)
    X = X.reshape(X.shape[0], 1) if X.ndim == 1 else X
    if labels is None:
        return X
    labels = os.fspath(labels)
    y = _rows(labels, blocksize)
    if y.ndim != 1:
        raise DataFileError(labels, "has more than one number for an image; are they labels?")
    if len(y) != len(X):
        raise DataFileError(labels, f"has {len(y)} labels for the {len(X)} images of {images}")
    return X, y.rechunk(X.chunks[:1])


def _rows(path: str, blocksize: str | int) -> da.Array:
    """All numbers of a file; those of one row side by side."""
    header = _header(path)
    n = header.shape[0]
    step = max(1, parse_bytes(blocksize) // header.row)
    if parse_bytes(blocksize) < 1:
        raise ValueError(f"blocksize must be at least 1 byte, not {blocksize!r}")
    if infer_compression(path):
        step = n
    else:
        _check_size(path, header, _size(path))
    read, dtype = delayed(_read, pure=False), np.dtype(header.dtype).newbyteorder("=")
    tail = (header.row // dtype.itemsize,) if len(header.shape) > 1 else ()
    blocks = []
    for first in range(0, n, step):
        count = min(step, n - first)
        part = read(path, header, first, count)
        blocks.append(da.from_delayed(part, (count, *tail), dtype=dtype))
    return da.concatenate(blocks)


def _header(path: str) -> Header:
    with decompressed(path) as file:
        magic = file.read(4)
        if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in TYPES or not magic[3]:
            raise DataFileError(path, f"is no IDX file: it begins with the bytes {magic.hex(' ')}")
        sizes = file.read(4 * magic[3])
    if len(sizes) < 4 * magic[3]:
        raise DataFileError(path, f"ends at byte {4 + len(sizes)}, within its header")
    shape = tuple(int(size) for size in np.frombuffer(sizes, ">u4"))
    if not all(shape):
        raise DataFileError(path, f"has no numbers: its header says {_times(shape)}")
    return Header(TYPES[magic[2]], shape, 4 + len(sizes))


def _size(path: str) -> int:
    fs, name = fsspec.core.url_to_fs(path)
    return int(fs.size(name))


def _check_size(path: str, header: Header, size: int) -> None:
    expected = header.start + header.shape[0] * header.row
    if size != expected:
        raise DataFileError(
            path,
            f"ends at byte {size}; its header says {_times(header.shape)} numbers, "
            f"which end at byte {expected}",
        )


def _read(path: str, header: Header, first: int, count: int) -> np.ndarray:
    with decompressed(path) as file:
        file.seek(header.start + first * header.row)
        # All that follows, if this is all, so that what is too long is seen too.
        data = file.read(count * header.row if first or count < header.shape[0] else -1)
    if len(data) != count * header.row:
        _check_size(path, header, header.start + first * header.row + len(data))
    numbers = np.frombuffer(data, header.dtype).astype(np.dtype(header.dtype).newbyteorder("="))
    return numbers.reshape(count, -1) if len(header.shape) > 1 else numbers


def _times(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape)
