"""Text files read in partitions equal whole files, and errors name the line."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from dask.callbacks import Callback
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

from benchmarks.workloads.boosting import GradientBoostingRegressor
from benchmarks.workloads.datasets import (
    DataFileError,
    read_csv_regression,
    read_lda_c,
    read_svmlight,
    read_vocabulary,
    read_year_prediction,
)

rng = np.random.default_rng(0)
X = sp.random(60, 12, 0.4, "csr", random_state=0)
y = np.where(rng.random(60) > 0.5, 1.0, -1.0)
# From less than a line to more than the file: boundaries fall in the middle of lines, and at ends.
BLOCKSIZES = [17, 100, 501, 1000, "1MiB"]


@pytest.fixture
def svmlight(tmp_path):
    dump_svmlight_file(X, y, str(tmp_path / "data.svm"), zero_based=False)
    return str(tmp_path / "data.svm")


@pytest.mark.parametrize("blocksize", BLOCKSIZES)
def test_svmlight_is_what_scikit_learn_reads(svmlight, blocksize):
    ours = read_svmlight(svmlight, 12, blocksize=blocksize)
    theirs = load_svmlight_file(svmlight, n_features=12, zero_based=False)
    values, labels = dask.compute(*ours)
    assert sp.issparse(values) and ours[0].dtype == values.dtype == float
    assert np.array_equal(values.toarray(), theirs[0].toarray())
    assert np.array_equal(labels, theirs[1])
    assert (ours[0].npartitions > 1) == (blocksize != "1MiB")


def test_rows_and_labels_that_are_computed_together_are_parsed_once(svmlight):
    parsed = []
    lazy = read_svmlight(svmlight, 12, blocksize=500)
    with Callback(pretask=lambda key, *_: parsed.append("parse" in str(key))):
        dask.compute(*lazy)
    assert sum(parsed) == lazy[0].npartitions > 1


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_lines_at_every_boundary_are_read_once(tmp_path, end):
    path = tmp_path / "data.svm"
    path.write_bytes(b"1 1:1\n# nothing\n2 2:4 # more\r\n\n3" + end)
    for blocksize in range(1, 40):
        values, labels = dask.compute(*read_svmlight(str(path), 2, blocksize=blocksize))
        assert labels.tolist() == [1, 2, 3]
        assert values.toarray().tolist() == [[1, 0], [0, 4], [0, 0]]


def test_svmlight_dense_and_single(svmlight):
    lazy, _ = read_svmlight(svmlight, 12, blocksize=400, dense=True, dtype="float32")
    assert isinstance(lazy._meta, np.ndarray) and lazy.dtype == np.float32
    values = lazy.compute()
    assert isinstance(values, np.ndarray) and values.dtype == np.float32
    np.testing.assert_allclose(values, X.toarray(), rtol=1e-6)


def test_rows_are_counted_on_demand(svmlight):
    lazy, labels = read_svmlight(svmlight, 12, blocksize=500)
    assert np.isnan(lazy.shape[0])
    lazy.compute_chunk_sizes()
    labels.compute_chunk_sizes()
    assert lazy.shape == (60, 12) and labels.chunks == lazy.chunks[:1]


def test_several_files_and_compressed_ones(svmlight, tmp_path):
    text = (tmp_path / "data.svm").read_bytes()
    (tmp_path / "data2.svm.gz").write_bytes(gzip.compress(text))
    (tmp_path / "data3.svm.bz2").write_bytes(bz2.compress(text))
    lazy, labels = read_svmlight(str(tmp_path / "data*"), 12, blocksize="1MiB")
    assert lazy.npartitions == 3
    np.testing.assert_allclose(lazy.compute().toarray(), np.vstack([X.toarray()] * 3))
    assert np.array_equal(labels.compute(), np.concatenate([y] * 3))
    listed, _ = read_svmlight([svmlight, svmlight], 12)
    assert listed.compute().shape == (120, 12)


def test_nothing_is_read_before_it_is_computed(svmlight, tmp_path):
    lazy, labels = read_svmlight(svmlight, 12, blocksize=500)
    (tmp_path / "data.svm").unlink()
    with pytest.raises(FileNotFoundError):
        dask.compute(lazy, labels)


def test_only_the_partition_that_is_computed_is_read(tmp_path):
    """Behind a little more than a block of text the file is a hole."""
    with open(tmp_path / "large.svm", "wb") as file:
        file.write(b"1 2:3\n" * 200_000)
        file.truncate(2**30)
    lazy, _ = read_svmlight(str(tmp_path / "large.svm"), 2, blocksize="1MiB")
    assert lazy.npartitions == 1024
    assert lazy.blocks[0].compute().sum() == 3 * (2**20 // 6 + 1)


SPOILED = {
    "1 3:x": "'3:x' is not INDEX:VALUE",
    "1 3": "'3' is not INDEX:VALUE",
    "1 3:": "'3:' is not INDEX:VALUE",
    "one 3:1": "the label is 'one', not a number",
    "1 13:1": "index 13 is not from 1 to 12",
    "1 0:1": "index 0 is not from 1 to 12",
    "1 3:1_0": "'3:1_0' is not INDEX:VALUE",
    "1_0 3:1": "the label is '1_0', not a number",
    "1 3:1\f": "'3:1\\x0c' is not INDEX:VALUE",
    "1\u2003 3:1": "the label is '1\\u2003', not a number",
    "\x1c": "the label is '\\x1c', not a number",
    "nan 3:1": "the label is 'nan', not a number",
    "1e999 3:1": "the label is '1e999', too large for float64",
    "1 3:-1e999": "the value of '3:-1e999' is too large for float64",
    "1 99999999999999999999:1": "index 99999999999999999999 is not from 1 to 12",
    "1 " + "3" * 1000: "'33333333333333333333333333333333333333333333333333333333... is not INDEX:",
    "1 4:1 3:1": "index 3 comes after 4",
}


@pytest.mark.parametrize("blocksize", [100, "1MiB"])
@pytest.mark.parametrize("line", SPOILED)
def test_a_malformed_line_is_named(svmlight, line, blocksize):
    with open(svmlight) as file:
        lines = file.readlines()
    lines[40] = line + "\n"
    with open(svmlight, "w") as file:
        file.writelines(lines)
    lazy, _ = read_svmlight(svmlight, 12, blocksize=blocksize)
    with pytest.raises(DataFileError) as caught:
        lazy.compute()
    assert str(caught.value).startswith(f"{svmlight}, line 41: {SPOILED[line]}")
    assert (caught.value.path, caught.value.line) == (svmlight, 41)


@pytest.mark.parametrize(("compress", "end"), [(gzip.compress, ".gz"), (bz2.compress, ".bz2")])
def test_a_truncated_archive_is_named(tmp_path, compress, end):
    path = tmp_path / f"data{end}"
    for content in (compress(b"1 1:1\n" * 100)[:-20], b"1 1:1\n"):
        path.write_bytes(content)
        with pytest.raises(DataFileError, match=rf"data\{end}: cannot be decompressed"):
            read_svmlight(str(path), 1)[0].compute()


def test_paths_may_be_objects_or_urls(svmlight):
    for one in (Path(svmlight), [Path(svmlight)], f"file://{svmlight}"):
        assert np.array_equal(read_svmlight(one, 12)[1].compute(), y)


def test_no_file_an_empty_file_and_bad_settings(tmp_path):
    (tmp_path / "empty").touch()
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_svmlight(str(tmp_path / "none*"), 3)
    with pytest.raises(FileNotFoundError, match="no such file"):
        read_svmlight(str(tmp_path / "none"), 3)
    with pytest.raises(DataFileError, match="empty: the file is empty"):
        read_svmlight(str(tmp_path / "empty"), 3)
    with pytest.raises(ValueError, match="n_features"):
        read_svmlight(str(tmp_path / "empty"), 0)
    with pytest.raises(ValueError, match="blocksize"):
        read_svmlight(str(tmp_path / "empty"), 3, blocksize=0)


def song_lines(n=30):
    return np.column_stack([rng.integers(1922, 2011, n), rng.standard_normal((n, 90)).round(5)])


@pytest.fixture
def songs(tmp_path):
    np.savetxt(tmp_path / "songs.txt", song_lines(), delimiter=",", fmt="%.5f")
    return str(tmp_path / "songs.txt")


@pytest.mark.parametrize("blocksize", [300, 2000, "64MiB"])
def test_songs_are_what_numpy_reads(songs, blocksize):
    features, years = dask.compute(*read_year_prediction(songs, blocksize=blocksize))
    table = np.loadtxt(songs, delimiter=",")
    assert np.array_equal(features, table[:, 1:]) and np.array_equal(years, table[:, 0])


def test_the_target_may_be_any_column(songs):
    table = np.loadtxt(songs, delimiter=",", dtype="float32")
    for target in (0, 5, -1):
        features, values = read_csv_regression(
            songs, target=target, blocksize=5000, dtype="float32"
        )
        assert features.shape[1] == 90 and features.dtype == np.float32
        assert np.array_equal(features.compute(), np.delete(table, target, axis=1))
        assert np.array_equal(values.compute(), table[:, target])
    with pytest.raises(ValueError, match="target 91"):
        read_csv_regression(songs, target=91)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("1999,1", "2 values, not 91"),
        (",".join(["1"] * 92), "92 values, not 91"),
        (",".join(["1"] * 90 + ["x"]), "'x' in column 91 is not a number"),
        (",".join(["1"] * 90 + ["1_0"]), "'1_0' in column 91 is not a number"),
        (",".join(["1"] * 90 + ["1\f"]), r"'1\\x0c' in column 91 is not a number"),
        (",".join(["1"] * 90 + ["nan"]), "'nan' in column 91 is not a number"),
        (",".join(["1"] * 90 + ["1e999"]), "'1e999' in column 91 is too large for float64"),
        (",".join(["1"] * 90 + [""]), "'' in column 91 is not a number"),
    ],
)
@pytest.mark.parametrize("blocksize", [2000, "64MiB"])
def test_a_malformed_song_is_named(songs, line, what, blocksize):
    with open(songs, "a") as file:
        file.write(line)
    with pytest.raises(DataFileError, match=f"songs.txt, line 31: {what}"):
        read_year_prediction(songs, blocksize=blocksize)[0].compute()


def test_a_value_too_large_for_its_type_is_named(songs):
    with open(songs, "a") as file:
        file.write(",".join(["1"] * 90 + ["1e39"]))
    assert read_year_prediction(songs)[0].max().compute() == 1e39
    with pytest.raises(DataFileError, match=r"line 31: '1e39' in .* is too large for float32"):
        read_year_prediction(songs, dtype="float32")[0].compute()


def test_comments_and_query_numbers_may_stand_in_svmlight_files(tmp_path):
    path = tmp_path / "data.svm"
    path.write_text("# any_thing \u2028\n1 qid:3 1:2.5 # b_c\n-1 2:+1e3\r\n")
    values, labels = dask.compute(*read_svmlight(str(path), 2))
    assert labels.tolist() == [1, -1] and values.toarray().tolist() == [[2.5, 0], [0, 1000]]


@pytest.mark.parametrize("seed", range(150))
def test_whatever_stands_in_a_file_is_read_or_named(tmp_path, seed):
    """Lines with some bytes changed: never another error than one with file and line."""
    chance = np.random.default_rng(seed)
    line = b"2 1:3 4:5.5\n1,2.5,3\n2 1:2 3:4\n-1 1:1e3\n"
    text = np.frombuffer(line * 3, np.uint8).copy()
    at = chance.choice(len(text), chance.integers(1, 6), replace=False)
    others = np.frombuffer(b"\0\t\f\n :,-+.#e_9\x1c\x85\xa0\xff", np.uint8)
    text[at] = chance.choice(others, len(at))
    path = tmp_path / "data"
    path.write_bytes(text[chance.integers(0, 30) :].tobytes())
    for read in (
        lambda: read_svmlight(str(path), 9)[0],
        lambda: read_csv_regression(str(path), 2)[0],
        lambda: read_lda_c(str(path)),
        lambda: read_lda_c(str(path), read_vocabulary(path)),
    ):
        try:
            read().compute()
        except DataFileError as error:
            assert error.line is not None and str(path) in str(error)
            assert "cannot be read" not in error.what  # every reason is said in our words


def test_files_are_trained_on(tmp_path):
    """In the form in which they come: rows uncounted, partitions by bytes."""
    values = rng.standard_normal((400, 3))
    table = np.column_stack([values[:, 0] ** 2, values])
    np.savetxt(tmp_path / "table.csv", table, delimiter=",")
    features, target = read_csv_regression(str(tmp_path / "table.csv"), blocksize=10_000)
    assert features.npartitions > 2
    model = GradientBoostingRegressor(max_iter=20).fit(features, target)
    assert model.score(features, target) > 0.8
    assert np.isnan(model.predict(features).shape[0])
