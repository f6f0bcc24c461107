"""Corpora in LDA-C form, such as the Associated Press's: ``N term:count term:count ...`` a line.

N is the number of different terms of the document, and terms are numbered from 0.
"""

from __future__ import annotations

import os
import re
from typing import Any

import dask
import numpy as np
import scipy.sparse
from dask.delayed import delayed

from benchmarks.workloads.datasets.errors import DataFileError, decompressed
from benchmarks.workloads.datasets.lines import Paths, columns_of, parse, ranges, shown

__all__ = ["read_lda_c", "read_vocabulary"]

DOCUMENT = re.compile(rb"[ \t]*\d{1,15}([ \t]+\d{1,15}:\d{1,15})*[ \t\r]*")
#: Terms that there may be: their numbers are indices of sparse matrices. Counts have 15 digits at
#: most, which floats hold exactly.
MOST_TERMS = 2**31 - 1


def read_vocabulary(path: Any) -> list[str]:
    """Return the terms in a vocabulary file, by line: term ``i`` is column ``i`` of the counts.

    Raises
    ------
    FileNotFoundError
    DataFileError
        A term is not UTF-8.
    """
    name, terms = os.fspath(path), []
    with decompressed(name) as file:
        for number, line in enumerate(file, start=1):
            try:
                terms.append(line.decode().strip())
            except UnicodeDecodeError as error:
                raise DataFileError(name, f"the term is not UTF-8: {error}", number) from error
    return terms


def read_lda_c(
    paths: Paths,
    vocabulary: Any = None,
    *,
    blocksize: str | int = "64MiB",
) -> Any:
    """Return counts of terms in documents, as a lazy dask array.

    Parameters
    ----------
    paths : path or list of paths
        Files, or patterns with ``*``; local or URLs. One that is compressed (.gz, .bz2, .xz) is one
        partition.
    vocabulary : path or sequence of str, optional
        The vocabulary file or its terms, which say how many columns there are. Without, the files
        are read once now to find the greatest term.
    blocksize : str or int
        Bytes of text in a partition, more than the longest line has. The Associated Press corpus
        has 3 MB.

    Returns
    -------
    dask array of float64, (n_documents, n_terms)
        With blocks of `scipy.sparse.csr_matrix`. The number of documents is not known before
        ``compute_chunk_sizes()``.

    Raises
    ------
    FileNotFoundError, ValueError
        There is no such file; it is empty; `blocksize` is not positive.
    DataFileError
        When computed: a line is malformed. File and number of the line are in the message.
    """
    is_path = isinstance(vocabulary, (str, os.PathLike))
    terms = read_vocabulary(vocabulary) if is_path else vocabulary
    where = ranges(paths, blocksize)
    task = delayed(parse, pure=False)
    if terms is None:
        widths = dask.compute(*[task(one, _width, _explain, None) for one in where])
        n_terms = max(widths)
    else:
        n_terms = len(terms)
    parsed = [task(one, _read, _explain, n_terms) for one in where]
    return columns_of(parsed, 0, n_terms, scipy.sparse.csr_matrix((0, 0)))


def _documents(text: bytes) -> list[np.ndarray]:
    """Return the number of terms, then term and count in turn, of each document."""
    found = []
    for line in filter(bytes.strip, text.split(b"\n")):
        if not DOCUMENT.fullmatch(line):
            raise ValueError("not a document")
        numbers = np.array(line.replace(b":", b" ").split()).astype(np.int64)
        if len(numbers) != 1 + 2 * numbers[0] or numbers[1::2].max(initial=0) >= MOST_TERMS:
            raise ValueError("another number of terms, or too large a one")
        found.append(numbers)
    return found


def _width(text: bytes, n_terms: None) -> int:
    return max((int(one[1::2].max(initial=-1)) + 1 for one in _documents(text)), default=0)


def _read(text: bytes, n_terms: int) -> tuple[scipy.sparse.csr_matrix]:
    documents = _documents(text)
    ends = np.cumsum([0, *(one[0] for one in documents)])
    all_of = np.concatenate([np.empty(0, np.int64), *(one[1:] for one in documents)])
    terms, counts = all_of[::2], all_of[1::2].astype(float)
    if len(terms) and terms.max() >= n_terms:
        raise ValueError("a term beyond the vocabulary")
    counted = scipy.sparse.csr_matrix((counts, terms, ends), shape=(len(documents), n_terms))
    counted.sum_duplicates()
    return (counted,)


def _explain(line: bytes, n_terms: int | None) -> str | None:
    """Return what is wrong with a line."""
    length, *pairs = re.split(rb"[ \t]+", line.strip(b" \t\r"))
    if not re.fullmatch(rb"\d{1,15}", length):
        return f"{shown(length)} is not a number of terms"
    most = MOST_TERMS if n_terms is None else n_terms
    for pair in pairs:
        if not re.fullmatch(rb"\d{1,15}:\d{1,15}", pair):
            return f"{shown(pair)} is not TERM:COUNT"
        if (term := int(pair.partition(b":")[0])) >= most:
            return f"term {term} is not below {most}, the number of terms"
    return f"{int(length)} terms are announced, and {len(pairs)} are there"
