"""IDX files give one image per row, and files of the wrong length are named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from benchmarks.workloads.datasets import DataFileError, read_idx

rng = np.random.default_rng(0)
IMAGES = rng.integers(0, 256, (50, 7, 6), dtype=np.uint8)
LABELS = rng.integers(0, 10, 50, dtype=np.uint8)


def idx(array, code=0x08):
    sizes = struct.pack(f">{array.ndim}I", *array.shape)
    return bytes([0, 0, code, array.ndim]) + sizes + array.tobytes()


def write(path, content):
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


@pytest.fixture
def files(tmp_path):
    return write(tmp_path / "images", idx(IMAGES)), write(tmp_path / "labels", idx(LABELS))


@pytest.mark.parametrize(("blocksize", "partitions"), [(1, 50), (300, 8), ("64MiB", 1)])
def test_images_and_labels(files, blocksize, partitions):
    X, y = read_idx(*files, blocksize=blocksize)
    assert X.npartitions == y.npartitions == partitions
    assert X.dtype == y.dtype == np.uint8 and X.shape == (50, 42)
    assert np.array_equal(X.compute(), IMAGES.reshape(50, 42))
    assert np.array_equal(y.compute(), LABELS)


def test_images_alone(files):
    for path in (files[0], Path(files[0])):
        assert np.array_equal(read_idx(path).compute(), IMAGES.reshape(50, 42))


def test_a_file_larger_than_memory(tmp_path):
    """A hole of 100 GB: pictures that are black."""
    with open(tmp_path / "images", "wb") as file:
        file.write(bytes([0, 0, 8, 3]) + struct.pack(">3I", 100_000, 1000, 1000))
        file.truncate(16 + 100_000 * 10**6)
    X = read_idx(str(tmp_path / "images"), blocksize="100 MB")
    assert X.npartitions == 1000 and X.nbytes == 10**11
    assert X.blocks[-1].compute().shape == (100, 10**6)


@pytest.mark.parametrize("packed", ["images", "labels"])
def test_compressed_files(tmp_path, packed):
    names = [name + (".gz" if name == packed else "") for name in ("images", "labels")]
    paths = [
        write(tmp_path / name, idx(array))
        for name, array in zip(names, (IMAGES, LABELS), strict=True)
    ]
    X, y = read_idx(*paths, blocksize=420)
    assert X.npartitions == y.npartitions == (1 if packed == "images" else 5)
    assert np.array_equal(X.compute(), IMAGES.reshape(50, 42))
    assert np.array_equal(y.compute(), LABELS)


@pytest.mark.parametrize(
    ("code", "form"),
    [(0x09, "i1"), (0x0B, ">i2"), (0x0C, ">i4"), (0x0D, ">f4"), (0x0E, ">f8")],
)
def test_numbers_of_every_type(tmp_path, code, form):
    array = rng.integers(-100, 100, (5, 3)).astype(form)
    X = read_idx(write(tmp_path / "x", idx(array, code)), blocksize=20)
    assert X.dtype.isnative and X.compute().dtype == X.dtype == np.dtype(form).newbyteorder("=")
    assert np.array_equal(X.compute(), array)


def test_a_file_of_another_length_is_named_with_bytes(tmp_path):
    whole = idx(IMAGES)
    for content in (whole[:1000], whole + b"more"):
        plain = write(tmp_path / "images", content)
        words = rf"images: ends at byte {len(content)}; .* 50 x 7 x 6 numbers, .* byte 2116"
        with pytest.raises(DataFileError, match=words):
            read_idx(plain)
        packed = read_idx(write(tmp_path / "images.gz", content))
        with pytest.raises(DataFileError, match=words.replace("images", "images.gz", 1)):
            packed.compute()


def test_a_truncated_archive_is_named(tmp_path):
    path = tmp_path / "images.gz"
    path.write_bytes(gzip.compress(idx(IMAGES))[:-100])
    with pytest.raises(DataFileError, match="cannot be decompressed"):
        read_idx(str(path)).compute()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "no IDX file"),
        (b"P5 7 6 255", "no IDX file: it begins with the bytes 50 35 20 37"),
        (b"\0\0\x08\x03\0\0\0\x05", "ends at byte 8, within its header"),
        (idx(IMAGES[:0]), "has no numbers: its header says 0 x 7 x 6"),
    ],
)
def test_another_header_is_refused(tmp_path, content, words):
    with pytest.raises(DataFileError, match=words):
        read_idx(write(tmp_path / "images", content))


def test_labels_must_go_with_images(files, tmp_path):
    other = write(tmp_path / "other", idx(LABELS[:40]))
    with pytest.raises(DataFileError, match=r"other: has 40 labels for the 50 images of .*images"):
        read_idx(files[0], other)
    with pytest.raises(DataFileError, match="are they labels"):
        read_idx(files[0], files[0])
    with pytest.raises(FileNotFoundError):
        read_idx(str(tmp_path / "none"))
    with pytest.raises(ValueError, match="blocksize"):
        read_idx(files[0], blocksize=0)
