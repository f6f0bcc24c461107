"""The store of runs: what it is given comes back, and no file stops it."""

import logging
import math
import os
import sqlite3
import threading

import numpy as np
import pytest

from dask_slaq.core.run_history import Kind, PastRun
from dask_slaq.run_history import RunStore, StoreError, prune, read_kinds, read_runs


def a_run(job="job", kind="svm", n=20, **other):
    at = np.arange(1, n + 1)
    features = (("C", -1.0), ("rows", 5.0))
    return PastRun(
        job, Kind(kind, features), at, 1e6 + 1.0 / at, n, ended=other.pop("ended", 5.0), **other
    )


def same(one, other):
    def plain(run):
        arrays = (run.iteration.tolist(), run.loss.tolist())
        rest = [getattr(run, f) for f in ("job", "kind", "iterations", "outcome", "law", "ended")]
        return (*arrays, *rest, *(repr(v) for v in (run.work, run.tasks)))

    return plain(one) == plain(other)


def filled(path, runs, limits=None, **about):
    """A store that has so many runs, which end one after the other."""
    store = RunStore(path, **limits or {})
    for number in range(runs):
        store.add(a_run(str(number), ended=float(number), **about))
    assert store.flush(60)
    return store


@pytest.fixture
def store(tmp_path):
    made = RunStore(tmp_path / "runs.db")
    yield made
    made.close()


def test_a_run_comes_back_as_it_was(store):
    runs = [
        a_run(),
        a_run("é\ud800", "other kind", work=2.5, tasks=8.0, law=(1.0, 2.0, 0.0, 0.5), ended=7.0),
        a_run("short", n=1, outcome="failed", ended=9.0),
    ]
    for run in runs:
        store.add(run)
    assert store.flush()
    assert same(store.load("svm", 10)[0], runs[2]) and same(store.load("svm", 10)[1], runs[0])
    (found,) = store.load("other kind", 10)
    assert found.job == "é?" and found.law == (1.0, 2.0, 0.0, 0.5) and math.isclose(found.work, 2.5)
    assert store.load("unknown", 10) == []
    assert [run.job for run in store.load("svm", 1)] == ["short"]  # the newest


def test_the_oldest_runs_are_pruned(tmp_path):
    filled(tmp_path / "runs.db", 2600, {"most_runs": 1000}).close()
    left = [int(run.job) for run in read_runs(tmp_path / "runs.db")]
    assert 900 <= len(left) <= 1600 and left == list(range(2599, 2599 - len(left), -1))


def test_the_file_is_bounded_in_bytes(tmp_path):
    path = tmp_path / "runs.db"
    filled(path, 5000, {"most_bytes": 1_500_000}, n=64).close()
    again = RunStore(path, most_bytes=1_500_000)
    again.close()
    assert 500_000 < path.stat().st_size <= 1_500_000


def write_text(path):
    path.write_text("# notes of mine\n" * 500)


def write_other_database(path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE mine (a)")


def write_later_version(path):
    RunStore(path).close()
    with sqlite3.connect(path) as later:
        later.execute("PRAGMA user_version = 99")


def write_damaged(path):
    filled(path, 300).close()
    data = bytearray(path.read_bytes())
    data[4096 : len(data)] = os.urandom(len(data) - 4096)
    path.write_bytes(data)


def write_truncated(path):
    write_damaged(path)
    path.write_bytes(path.read_bytes()[:3000])


@pytest.mark.parametrize(
    "write",
    [write_text, write_other_database, write_later_version, write_damaged, write_truncated],
    ids=lambda write: write.__name__,
)
def test_a_file_that_cannot_be_used_is_set_aside(tmp_path, caplog, write):
    path = tmp_path / "runs.db"
    write(path)
    before = path.read_bytes()
    with caplog.at_level(logging.WARNING):
        store = RunStore(path)
        store.load("svm", 10)
        store.add(a_run())
        assert store.flush() and len(store.load("svm", 10)) == 1
        store.close()
    (aside,) = tmp_path.glob("runs.db.aside-*[0-9]")
    assert aside.read_bytes() == before
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("dask_slaq")]
    assert str(path) in line and aside.name in line


def test_damage_that_shows_later_is_set_aside_too(tmp_path, caplog):
    """The header and the index are sound, and some rows are not."""
    path = tmp_path / "runs.db"
    filled(path, 2000, n=64).close()
    data = bytearray(path.read_bytes())
    middle = len(data) // 2 // 4096 * 4096
    data[middle : middle + 40960] = bytes(40960)
    path.write_bytes(data)
    with caplog.at_level(logging.WARNING):
        store = RunStore(path)
        store.load("svm", 3000)
        store.add(a_run())
        assert store.flush(30)
        store.load("svm", 3000)  # a second complaint must not cost the new file
        store.add(a_run())
        assert store.flush(30) and len(store.load("svm", 10)) == 2
        store.close()
    assert len(list(tmp_path.glob("runs.db.aside-*[0-9]"))) == 1


def test_a_full_disk_costs_one_line(tmp_path, caplog):
    """A page limit makes SQLite say what it says when the disk is full."""
    path = tmp_path / "runs.db"
    RunStore(path).close()
    store = RunStore(path)
    store.flush()
    full = threading.Event()

    def limit(connection):
        connection.execute("PRAGMA max_page_count = 12")
        full.set()

    write = store._write
    store._write = lambda connection, requests: (limit(connection), write(connection, requests))
    with caplog.at_level(logging.WARNING):
        for _ in range(300):
            store.add(a_run(n=64))
        assert not store.flush()
        store.close()
    assert full.is_set() and "full" in store.failed
    assert len([r for r in caplog.records if r.name.startswith("dask_slaq")]) == 1


def test_a_file_that_is_deleted_is_begun_anew(store, caplog):
    store.add(a_run())
    assert store.flush()
    for file in store.path.parent.iterdir():
        file.unlink()
    store.add(a_run())
    assert store.flush() and len(store.load("svm", 10)) == 1
    assert "gone" in caplog.text


def test_others_read_and_prune_while_it_is_written(store):
    for number in range(100):
        kind = "old" if number < 40 else "new"
        store.add(a_run(kind=kind, ended=float(number), n=1 + number))
    assert store.flush()
    new, old = read_kinds(store.path)
    assert (new.kind, new.runs, new.done, new.last) == ("new", 60, 60, 99.0)
    assert (old.least, old.most, old.mean) == (1, 40, 20.5)
    assert prune(store.path, before=20.0) == 20
    assert prune(store.path, kind="new", before=50.0) == 10
    store.add(a_run(kind="old"))
    assert store.flush()
    assert [kind.runs for kind in sorted(read_kinds(store.path), key=lambda k: k.kind)] == [50, 21]
    assert prune(store.path) == 71 and read_kinds(store.path) == []


@pytest.mark.parametrize(
    ("write", "words"),
    [
        (lambda path: None, "no such file"),
        (lambda path: path.mkdir(), "directory"),
        (write_text, "not a store"),
        (write_other_database, "not a store"),
        (write_later_version, "version 99"),
    ],
    ids=["missing", "directory", "text", "other", "later"],
)
def test_readers_say_what_is_wrong_and_change_nothing(tmp_path, write, words):
    path = tmp_path / "runs.db"
    write(path)
    for use in (read_kinds, read_runs, prune):
        with pytest.raises(StoreError, match=words) as told:
            use(path)
        assert str(path) in str(told.value)
    assert {p.name.partition("-")[0] for p in tmp_path.iterdir()} <= {"runs.db"}
    assert not list(tmp_path.glob("*.aside-*"))


def test_a_slow_disk_costs_runs_and_no_memory(tmp_path, caplog, monkeypatch):
    monkeypatch.setattr("dask_slaq.run_history.store.MOST_WAITING_REQUESTS", 5)
    gate = threading.Event()
    store = RunStore(tmp_path / "runs.db")
    store.add_usage([], lambda: gate.wait(30))
    with caplog.at_level(logging.WARNING):
        for _ in range(600):
            store.add(a_run())
    gate.set()
    store.close()
    assert store.dropped + store.stored == 600 and store.dropped > 500 and store.failed is None
    assert len([r for r in caplog.records if r.name.startswith("dask_slaq")]) == 1
