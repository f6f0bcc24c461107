"""Usage in rows: nothing is lost by bounds, and days fade."""

import pytest

from dask_slaq.core import usage
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.usage import DAY, EARLIER, OTHERS, Ledger, Usage
from dask_slaq.core.usage_sums import check_by, decayed, sum_by


def total(ledger):
    return sum(row.core_seconds for row in ledger.rows.values())


def test_jobs_beyond_the_bound_of_a_day_are_added_up():
    ledger = Ledger()
    for n in range(5000):
        ledger.of(7, "ann", "svm", f"svm-{n}").core_seconds += 1
    assert len(ledger.rows) == usage.MOST_BY_JOB + 1 and total(ledger) == 5000
    by_kind = sum_by(ledger.rows.items(), ["kind", "day"])
    assert by_kind == {("svm", 7): Usage(core_seconds=5000)}
    assert sum_by(ledger.rows.items(), ["job"])[OTHERS,].core_seconds == 4000


def test_owners_beyond_the_bound_of_a_day_are_added_up_over_several_writes():
    ledger, seen = Ledger(), 0.0
    for n in range(5000):
        ledger.of(7, f"owner-{n}", "", "").core_seconds += 1
        if n % 100 == 0:
            seen += sum(row.core_seconds for _, row in ledger.drain())
    assert len(ledger.rows) < 100 and total(ledger) + seen == 5000
    assert ledger.of(7, "owner-0", "", "") is not ledger.of(7, "owner-4999", "", "")


def test_former_days_are_added_up_where_nothing_takes_them():
    ledger = Ledger()
    for day in range(300):
        for n in range(200):
            ledger.of(day, "ann", "svm", f"svm-{n}").core_seconds += 1
        ledger.of(day, "bob", "", "").done += 1
    assert len(ledger.rows) <= usage.MOST_ROWS and total(ledger) == 300 * 200
    assert sum_by(ledger.rows.items(), ["owner"])["bob",].jobs == 300
    assert sum_by(ledger.rows.items(), ["kind"]).keys() <= {("svm",), ("",), (OTHERS,)}


def test_use_fades_by_the_half_life():
    now = 100 * DAY + DAY / 2
    assert decayed(EARLIER, 9e9, now, 7 * DAY) == 0
    assert decayed(93, 800.0, now, 7 * DAY) == pytest.approx(400.0)
    assert decayed(100, 8.0, now, DAY / 4) == pytest.approx(4.0)  # a quarter of a day ago


@pytest.mark.parametrize("by", ["week", [], ["owner", "x"], None, 3, [["owner"]]])
def test_it_is_summed_by_what_it_has(by):
    with pytest.raises(InvalidSetting, match="owner, kind, job, day"):
        check_by(by)
    assert check_by("day") == ("day",) and check_by(["day", "job", "day"]) == ("day", "job")
