"""The page on what the package relies on in Dask names all of it, and tests that are there."""

import re
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.common.structure import private_names, touch_points

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "touch-points.md").read_text()
FACTS = (ROOT / "tests" / "scheduler" / "test_dask_facts.py").read_text()
POINTS = touch_points(ROOT / "dask_slaq")
NAMES = [name for each in POINTS for name in each.names]


def test_what_is_found_in_the_source():
    in_scheduler = {name for each in POINTS if each.where == "scheduler" for name in each.names}
    assert {"is_rootish", "adaptive_target", "long-running", "handle_stream"} <= in_scheduler
    assert {"_stream_handlers", "_rejoin_list", "dask._task_spec"} <= set(NAMES)


def test_the_page_counts_them():
    count = Counter()
    for each in POINTS:
        count[each.where] += len(each.names)
    told = re.findall(r"(\d+) (?:in the scheduler|in clients|on workers)", PAGE)
    assert list(map(int, told)) == list(count.values()), count


def test_private_names_are_found(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(
        "from dask._spec import Task\nfrom dask_slaq._mine import x\nLOOP = Server.loop.__code__\n"
        "self.scheduler._hidden = getattr(ws, '_there', 1) + ws.public + self._own + job._own\n"
    )
    assert private_names(path) == {"dask._spec", "loop", "_hidden", "_there"}


@pytest.mark.parametrize("name", NAMES)
def test_every_touch_point_is_on_the_page(name):
    assert f"`{name}`" in PAGE


def test_every_fact_is_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| facts |" not in line]
    rows = [row for row in rows if row.count("|") > 4]  # without the table of counts
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[3])]
    assert len(named) > 15
    assert [name for name in named if f"def test_{name}(" not in FACTS] == []
    for row in rows:
        facts = row.split("|")[3]
        for path in re.findall(r"`(tests/\S+)`", facts):
            assert (ROOT / path).exists()
        assert "`" in facts, row
