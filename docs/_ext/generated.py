"""Parts of pages that are made from the code: ``<!-- generated: NAME -->`` is replaced by them."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from sphinx.application import Sphinx

import dask_slaq
from dask_slaq import config
from dask_slaq.core.policies import POLICIES, policy

#: Public names by purpose. Names that are missing here come last, under "More".
GROUPS = {
    "Train": ("job", "report", "submit", "StopTraining"),
    "See": ("status", "explain", "history", "progress"),
    "Steer": ("set", "pause", "resume", "stop", "set_policy"),
    "Run the scheduler": ("SlaqPlugin",),
    "Try without a cluster": ("simulate", "instrument"),
    "Report a problem": ("show_versions",),
}
_KEY = re.compile(r"^  ([a-z][a-z-]*):([^#]*)(?:#\s?(.*))?$")
_REST = re.compile(r"^\s+(?:[^#\s][^#]*)?#\s?(.*)$")


def api() -> str:
    """Return the public names of the package by purpose, each with its docstring."""
    left = dict.fromkeys(dask_slaq.__all__)
    text = []
    for title, names in {**GROUPS, "More": tuple(left)}.items():
        here = [name for name in names if name in left]
        for name in here:
            del left[name]
        if here:
            text.append(f"## {title}\n\n```{{eval-rst}}\n{''.join(map(_documented, here))}```\n")
    return "\n".join(text)


def _documented(name: str) -> str:
    value = getattr(dask_slaq, name)
    kind = "function" if callable(value) else "data"
    if inspect.isclass(value):
        kind = "exception" if issubclass(value, BaseException) else "class"
    return f".. auto{kind}:: dask_slaq.{name}\n\n"


def comments() -> dict[str, str]:
    """Return the comment of each key in ``slaq.yaml``, as one line."""
    found: dict[str, list[str]] = {}
    key = None
    for line in (Path(config.__file__).parent / "slaq.yaml").read_text().splitlines():
        if match := _KEY.match(line):
            key = match[1]
            found[key] = [match[3] or ""]
        elif key and (match := _REST.match(line)):
            found[key].append(match[1])
    return {key: " ".join(lines).strip() for key, lines in found.items()}


def settings() -> str:
    """Return a section per setting in ``slaq.yaml``: meaning, default, allowed values, variable."""
    said = comments()
    text = []
    for key, default in config.DEFAULTS["slaq"].items():
        name = key.replace("-", "_")
        _, allowed = config._READERS.get(name, (None, ""))
        written = yaml.safe_dump(default, default_flow_style=True).strip().removesuffix("\n...")
        rows = [f"Default: `{written}`", f"Variable: `DASK_SLAQ__{name.upper()}`"]
        if allowed:
            rows.insert(1, f"Allowed: {allowed}")
        meaning = _capitalized(said.get(key, "")) or "See the configuration page."
        meaning = meaning.replace("{", "`{", 1).replace("}}", "}}`", 1) if "{" in meaning else meaning
        text.append(f"## {key}\n\n{meaning}\n\n" + "\n".join(f"- {row}" for row in rows) + "\n")
    return "\n".join(text)


def _capitalized(text: str) -> str:
    text = text.replace("|", "\\|").replace("<", "&lt;")
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def policies() -> str:
    """Return the table of policies: name, and the first sentence of the docstring."""
    rows = []
    for name in POLICIES:
        first = (inspect.getdoc(type(policy(name))) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{name}` | {first} |")
    return "\n".join(["| name | rule |", "|---|---|", *rows])


def yaml_file() -> str:
    """Return ``slaq.yaml`` as a block of code."""
    return f"```yaml\n{(Path(config.__file__).parent / 'slaq.yaml').read_text()}```"


_PARTS = {"api": api, "settings": settings, "policies": policies, "slaq.yaml": yaml_file}


def fill(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the marks in a page by what they name."""

    def part(mark: re.Match[str]) -> str:
        return _PARTS[mark[1]]()

    source[0] = re.sub(r"^<!-- generated: (\S+) -->$", part, source[0], flags=re.MULTILINE)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hook, and read the pages again whenever the code may have changed."""
    import_module("dask_slaq.config")
    app.connect("source-read", fill)
    app.connect("env-get-outdated", lambda app, env, *_: [n for n in env.found_docs if "reference/" in n])
    return {"parallel_read_safe": True}
