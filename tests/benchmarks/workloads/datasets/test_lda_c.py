"""LDA-C corpora give their term counts, and a malformed document is named by its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from benchmarks.workloads.datasets import DataFileError, read_lda_c, read_vocabulary
from benchmarks.workloads.lda import LatentDirichletAllocation

DOCUMENTS = ["3 0:1 5:2 2:1", "1 9:4", "0", "2 7:1 1:3", "2 3:1 3:1"]
COUNTS = np.zeros((5, 10))
COUNTS[0, [0, 5, 2]] = 1, 2, 1
COUNTS[1, 9] = 4
COUNTS[3, [7, 1]] = 1, 3
COUNTS[4, 3] = 2


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "ap.dat").write_text("\n".join(DOCUMENTS) + "\n")
    (tmp_path / "vocab.txt").write_text("\n".join("abcdefghij") + "\n")
    return str(tmp_path / "ap.dat"), str(tmp_path / "vocab.txt")


@pytest.mark.parametrize("blocksize", [1, 13, 20, "1MiB"])
def test_a_corpus_is_its_counts(corpus, blocksize):
    path, vocabulary = corpus
    terms = read_vocabulary(vocabulary)
    assert terms == list("abcdefghij")
    for given in (vocabulary, Path(vocabulary), terms, None):
        lazy = read_lda_c(path, given, blocksize=blocksize)
        assert lazy.shape[1] == 10
        counted = lazy.compute()
        assert sp.issparse(counted) and np.array_equal(counted.toarray(), COUNTS)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("3 1:1 2:1", "3 terms are announced, and 2 are there"),
        ("2 1:1 2:", "'2:' is not TERM:COUNT"),
        ("1 1:-1", "'1:-1' is not TERM:COUNT"),
        ("x 1:1", "'x' is not a number of terms"),
        ("1 1:1_0", "'1:1_0' is not TERM:COUNT"),
        ("1\f1:1", r"'1\\x0c1:1' is not a number of terms"),
        ("\x1c", r"'\\x1c' is not a number of terms"),
        ("\u0663 1:1", "'\u0663' is not a number of terms"),
        ("1 999999999999999999999:1", "'999999999999999999999:1' is not TERM:COUNT"),
        ("1 10:1", "term 10 is not below 10"),
    ],
)
@pytest.mark.parametrize("blocksize", [10, "1MiB"])
def test_a_malformed_document_is_named(corpus, line, what, blocksize):
    path, vocabulary = corpus
    with open(path, "a") as file:
        file.write(line + "\n")
    with pytest.raises(DataFileError, match=rf"ap.dat, line 6: {what}"):
        read_lda_c(path, vocabulary, blocksize=blocksize).compute()


def test_a_corpus_is_trained_on(corpus):
    lazy = read_lda_c(*corpus)
    model = LatentDirichletAllocation(2, max_iter=2, random_state=0).fit(lazy)
    assert model.transform(lazy).compute().shape == (5, 2)


def test_a_term_beyond_what_a_matrix_has_is_named(tmp_path):
    path = tmp_path / "ap.dat"
    path.write_text("1 1:1\n1 2147483647:1\n")
    with pytest.raises(DataFileError, match=r"line 2: term 2147483647 is not below 2147483647"):
        read_lda_c(str(path))


def test_a_vocabulary_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"one\nt\xffwo\n")
    with pytest.raises(DataFileError, match=r"vocab.txt, line 2: the term is not UTF-8"):
        read_vocabulary(path)
