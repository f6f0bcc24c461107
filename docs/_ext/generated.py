"""Parts of pages that are made from the code: ``<!-- generated: NAME -->`` is replaced by them."""

from __future__ import annotations

import inspect
import re
from typing import Any

import yaml
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import dask_slaq
from dask_slaq import config
from dask_slaq.core.policies import POLICIES, policy

#: Public names by purpose. Names that are missing here come last, under "More".
GROUPS = {
    "Train": (
        "search",
        "job",
        "report",
        "steps",
        "resume",
        "submit",
        "StopTraining",
        "TrialPruned",
    ),
    "See": ("status", "explain", "history", "usage", "alerts", "progress"),
    "Steer": (
        "change",
        "pause",
        "unpause",
        "stop",
        "set_policy",
        "set_owner",
        "set_limit",
        "reserve",
        "reservations",
        "unreserve",
    ),
    "Run the scheduler": ("SlaqPlugin",),
    "Try without a cluster": ("simulate", "instrument"),
}


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


def settings() -> str:
    """Return a section per setting: meaning, default, allowed values, variable."""
    meanings = config.meanings()
    text = []
    for key, default in config.DEFAULTS["slaq"].items():
        name = key.replace("-", "_")
        allowed = (
            "[policies](policies.md)" if key == "policy" else escape(config.ROWS[name]["allowed"])
        )
        written = yaml.safe_dump(default, default_flow_style=True).strip().removesuffix("\n...")
        rows = (
            f"- Default: `{written}`",
            f"- Allowed: {allowed}",
            f"- Environment: `DASK_SLAQ__{name.upper()}`",
        )
        text.append("\n".join([f"## {key}\n\n{sentence(meanings[key])}\n", *rows, ""]))
    return "\n".join(text)


def sentence(comment: str) -> str:
    """Return a comment of ``slaq.yaml`` as a sentence of Markdown; braces are code."""
    parts = re.split(r"(\{.*\})", comment)
    text = "".join(f"`{part}`" if part.startswith("{") else escape(part) for part in parts)
    end = "" if text.endswith("...") else "."
    return f"{text[:1].upper()}{text[1:]}{end}"


def escape(text: str) -> str:
    """Return text with the characters escaped that Markdown would read as markup."""
    return re.sub(r"([\\<*_\[\]])", r"\\\1", text)


def policies() -> str:
    """Return the table of policies: name, and the first sentence of the docstring."""
    rows = []
    for name in POLICIES:
        first = (inspect.getdoc(type(policy(name))) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(f"| `{name}` | {first} |")
    return "\n".join(["| name | rule |", "|---|---|", *rows])


def yaml_file() -> str:
    """Return ``slaq.yaml`` as a block of code."""
    return f"```yaml\n{config.FILE.read_text()}```"


_PARTS = {"api": api, "settings": settings, "policies": policies, "slaq.yaml": yaml_file}


def fill(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace the marks in a page by what they name."""

    def part(mark: re.Match[str]) -> str:
        return _PARTS[mark[1]]()

    source[0] = re.sub(r"^<!-- generated: (\S+) -->$", part, source[0], flags=re.MULTILINE)


def outdated(app: Sphinx, env: BuildEnvironment, *changes: set[str]) -> list[str]:
    """Return the pages to read again: those whose parts may have changed with the code."""
    return [name for name in env.found_docs if name.startswith("reference/")]


def without_signature(
    app: Sphinx, what: str, name: str, value: object, *_: object
) -> tuple[str, None] | None:
    """Return no signature for protocols, which are implemented and not called."""
    return ("", None) if what == "class" and getattr(value, "_is_protocol", False) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the hooks."""
    app.connect("source-read", fill)
    app.connect("env-get-outdated", outdated)
    app.connect("autodoc-process-signature", without_signature)
    return {"parallel_read_safe": True}
