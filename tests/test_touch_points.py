"""The page on what the package relies on in Dask names all of it, and tests that are there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.common.structure import touch_points

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "touch-points.md").read_text()
FACTS = (ROOT / "tests" / "scheduler" / "test_dask_facts.py").read_text()
POINTS = touch_points(ROOT / "dask_slaq")


def test_what_is_found_in_the_source():
    assert {"_task_to_msg", "_task_prefix_count_global"} <= set(POINTS["private names read"])
    assert {"is_rootish"} <= set(POINTS["methods overridden"])
    assert {"log_event", "adaptive_target", "long-running", "idle-timeout"} <= set(
        POINTS["handlers and periodic callbacks surrounded"]
    )


@pytest.mark.parametrize("name", [name for names in POINTS.values() for name in names])
def test_every_touch_point_is_on_the_page(name):
    assert f"`{name}`" in PAGE


def test_every_fact_is_a_test():
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and "| facts |" not in line]
    named = [name for row in rows for name in re.findall(r"`([a-z_]+)`", row.split("|")[3])]
    assert len(named) > 15
    assert [name for name in named if f"def test_{name}(" not in FACTS] == []
    for row in rows:
        facts = row.split("|")[3]
        for path in re.findall(r"`(tests/\S+)`", facts):
            assert (ROOT / path).exists()
        assert "`" in facts, row
