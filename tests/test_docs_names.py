"""The pages and the README name calls and settings of the package that are there."""

import re
from pathlib import Path

import pytest
import yaml

import dask_slaq as slaq

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
SETTINGS = yaml.safe_load((ROOT / "dask_slaq" / "slaq.yaml").read_text())["slaq"]
#: A file, and what a message about a misspelt key quotes.
OTHERS = {"yaml", "ownrs"}
#: `slaq.NAME`, with the names that follow it: `slaq.pause`, `unpause` and `stop`.
NAMED = re.compile(r"(?<![\w.\-/])slaq\.([a-z][\w-]*)((?:`,? (?:and |or )?`[a-z][\w-]*(?=`))*)")


def names_in(text: str) -> list[str]:
    return [name for first, rest in NAMED.findall(text) for name in [first, *rest.split("`")[2::2]]]


def test_what_is_found_in_a_text():
    text = (
        "`slaq.job(x)`, `y.z`, dask_slaq.core; `slaq.pause`, `unpause` and `stop`; slaq.half-life:"
    )
    assert names_in(text) == ["job", "pause", "unpause", "stop", "half-life"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_name_in_a_page_is_of_a_call_or_a_setting(page):
    known = {*dir(slaq), *SETTINGS, *OTHERS}
    assert [name for name in names_in(page.read_text()) if name not in known] == []
