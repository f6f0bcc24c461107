"""Configuration of the documentation site, for ``sphinx-build docs site``."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "dask_slaq"
author = "dask_slaq contributors"
copyright = author
version = release = installed("dask-slaq")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "sphinx_click",
    "sphinx_copybutton",
    "pages",
    "generated",
    "mathml",
]
exclude_patterns = ["_build"]
templates_path = ["_templates"]

# Markdown
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 4
# Pages are shown all the same if they skip a level of headings, or hold code that Pygments does not
# know well. Everything else that Sphinx warns of ends a build with -W.
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

# Docstrings
autodoc_typehints = "none"  # numpydoc sections state the types in words
autodoc_preserve_defaults = True
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "py:obj"
smartquotes = False
html_math_renderer = "mathml"

# Appearance
html_theme = "dask_sphinx_theme"
html_title = "dask_slaq"
html_static_path = ["_static"]
html_css_files = ["slaq.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {"use_download_button": False, "home_page_in_toc": True}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
