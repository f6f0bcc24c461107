"""Run the Python blocks of the pages that promise to run as they are, in the order of the page."""

from __future__ import annotations

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser

# Read by Sphinx, or run as a script.
collect_ignore = ["conf.py", "_ext", "pictures"]

pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser()],
    patterns=["quick-start.md", "guides/*.md", "simulation.md", "write-a-policy.md"],
).pytest()
