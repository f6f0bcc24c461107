"""Laws of the site that a build does not check."""

from __future__ import annotations

import runpy
from pathlib import Path

from dask_slaq.config import DEFAULTS, meanings

DOCS = Path(__file__).parent


def test_the_pictures_are_what_the_script_draws():
    drawn = dict(runpy.run_path(str(DOCS / "pictures" / "draw.py"))["drawn"]())
    kept = {path.name: path.read_text() for path in (DOCS / "pictures").glob("*.svg")}
    assert kept == drawn, "run: python docs/pictures/draw.py"


def test_every_setting_says_what_it_means():
    said = meanings()
    assert [key for key in DEFAULTS["slaq"] if not said.get(key)] == []
