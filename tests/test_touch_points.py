"""The page on what the package relies on in Dask names all of it, and tests that are there."""

import re
from functools import cache, partial
from pathlib import Path

from structure import touch_points

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dask_slaq"
PAGE = (ROOT / "docs" / "touch-points.md").read_text()
README = (ROOT / "README.md").read_text()
FACTS = (ROOT / "tests" / "scheduler" / "test_dask_facts.py").read_text()
LISTED = {
    row.split("`")[1]: (title.lower(), *row.split("|")[2:-1])
    for title, section in re.findall(r"^## (\w+)\n(.*?)(?=^## )", PAGE, re.M | re.S)
    for row in re.findall(r"^\| `.*", section, re.M)
}
points = cache(partial(touch_points, PACKAGE))  # it takes seconds: not at each import


def test_what_is_found_in_a_module(tmp_path):
    (tmp_path / "module.py").write_text(
        "from dask._spec import Task\nfrom dask_slaq._mine import x\nLOOP = Server.loop.__code__\n"
        "OVERRIDDEN = ('is_rootish',)\nSURROUNDED = {'_mine': 'log-event'}\nown.priority = 1\n"
        "s.handlers['gather'] = getattr(pool, '_there', 1) + ws.address + self._own + job._own\n"
        "self.scheduler.unrunnable = ts.key, ts.ours, ws.metrics\n"
    )
    found = {name: "".join(how) for name, how in touch_points(tmp_path).items()}
    assert found == {
        **dict.fromkeys(("dask._spec", "loop", "_there"), "private"),
        **dict.fromkeys(("is_rootish", "log-event", "gather"), "overridden"),
        **{"unrunnable": "written", "metrics": "undocumented"},
    }


def test_the_page_lists_and_counts_every_name():
    assert {name: files for name, files in points().items() if name not in LISTED} == {}
    assert all(f"{len(LISTED)} names" in text for text in (PAGE, README))


def test_what_a_row_says_is_true():
    for name, (how, files, _, facts) in LISTED.items():
        assert how in points().get(name, ("undocumented",)), name
        for file in re.findall(r"`(\S+)`", files):
            assert name in (PACKAGE / file).read_text(), name
        for fact in re.findall(r"`(\S+)`", facts):
            assert (ROOT / fact).exists() or f"def test_{fact}(" in FACTS, name
