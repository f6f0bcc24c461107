"""Run the Python blocks of the pages that promise to run as they are, in the order of the page."""

from __future__ import annotations

import warnings

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

warnings.filterwarnings("ignore")

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["quick-start.md", "guides/*.md", "simulation.md", "write-a-policy.md"],
).pytest()
