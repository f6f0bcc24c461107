"""Usage in the store: it adds up, and old rows are added up."""

import sqlite3
import time

import pytest

from dask_slaq.core.owners.usage import DAY_SECONDS, OTHERS, Usage, UsageKey
from dask_slaq.run_history import RunStore, read_usage, usage_as_dicts
from dask_slaq.run_history import store as store_module

TODAY = int(time.time() // DAY_SECONDS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


def write(path, *rows):
    store = RunStore(path)
    assert store.add_usage([(UsageKey(*key), usage) for key, usage in rows])
    assert store.flush()
    store.close()


def test_what_is_written_is_added(path):
    for _ in range(3):
        write(
            path,
            ((TODAY, "ann", "svm", "svm-1"), Usage(2.5, waited=1.0, done=1, loss_reduction=0.5)),
            ((TODAY - 1, "ann\ud800", "", ""), Usage(1.0)),
        )
    assert read_usage(path) == {
        ("ann",): Usage(7.5, 3.0, 3, loss_reduction=1.5),
        ("ann?",): Usage(3.0),
    }
    assert read_usage(path, ["job", "day"], since=TODAY).keys() == {("svm-1", TODAY)}
    first, second = usage_as_dicts(read_usage(path, ["day", "kind"]), ["day", "kind"])
    assert (first["kind"], second["kind"], second["jobs"]) == ("", "svm", 3)
    assert (
        first["day"] < second["day"] == time.strftime("%Y-%m-%d", time.gmtime(TODAY * DAY_SECONDS))
    )


def test_old_usage_is_added_up_and_none_is_lost(path, monkeypatch):
    monkeypatch.setattr("dask_slaq.run_history.rows.MOST_ROWS", 1000)
    days = range(TODAY - 1000, TODAY + 1)
    one = Usage(1.0, done=1)
    write(path, *(((d, "ann", "svm", f"svm-{n}"), one) for d in days for n in (1, 2)))
    write(path, *(((d, "ann", "", ""), Usage(1.0)) for d in days))
    RunStore(path).close()  # the next day, or with the next scheduler
    assert read_usage(path) == {("ann",): Usage(3003.0, done=2002)}
    with sqlite3.connect(path) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM usage").fetchone()
    assert rows <= 1000
    by_job = read_usage(path, ["job"])
    assert by_job["svm-1",].jobs <= 91 and by_job[OTHERS,].jobs >= 1800
    assert by_job["",] == Usage(1001.0)
    assert len(read_usage(path, ["day"], since=TODAY - 100)) == 101


def test_usage_is_written_once_where_the_file_was_locked_for_a_while(path, monkeypatch):
    monkeypatch.setattr(store_module, "LOOK_RUNS", 0)
    failures = [sqlite3.OperationalError("database is locked")] * 2

    def prune_to(*args):
        if failures:
            raise failures.pop()

    store = RunStore(path)
    assert store.flush()
    monkeypatch.setattr(store_module.sql, "prune_to", prune_to)
    monkeypatch.setattr(store_module, "PAUSE_SECONDS", 0.01)
    store.add_usage([(UsageKey(TODAY, "ann", "", ""), Usage(1.0))])
    assert store.flush() and not failures
    store.close()
    assert read_usage(path) == {("ann",): Usage(1.0)}
