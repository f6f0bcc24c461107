"""Links that work both in the repository and on the site, and lists of pages that may be missing.

Pages link to each other and to files of the repository by relative paths, as code hosts show them.
On the site, ``../ARCHITECTURE.md`` is the page that includes that file, and any other file or
folder outside ``docs/`` is shown by its name. The directive ``pages`` is a toctree whose patterns
may match nothing; ``other-pages`` is a toctree of all pages that no list names.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.directives.other import TocTree
from sphinx.environment import BuildEnvironment

#: Pages that show a file of the repository's root.
INCLUDED = {
    "README.md": "index",
    "ARCHITECTURE.md": "project/architecture",
    "CONTRIBUTING.md": "project/contributing",
    "CHANGELOG.md": "project/changelog",
}
_LIST = re.compile(r"^```\{(?:toctree|pages)\}[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Pages(TocTree):
    """Toctree of the pages that match the patterns in its content, in that order."""

    def run(self) -> list[nodes.Node]:
        folder = dirname(self.env.docname)
        names = sorted(self.env.found_docs)
        found: dict[str, None] = {}
        for pattern in self.content:
            wanted = normpath(join(folder, pattern.strip()))
            matched = [name for name in names if fnmatchcase(name, wanted)]
            if not matched and "*" not in wanted:
                matched = [wanted]  # a toctree warns of it
            found.update(dict.fromkeys(matched))
        return self.of(list(found))

    def of(self, names: list[str]) -> list[nodes.Node]:
        """Return the toctree of the pages with these names."""
        self.content = StringList([f"/{name}" for name in names], source=self.env.docname)
        return super().run() if names else []


class OtherPages(Pages):
    """Toctree of the pages that no list of pages names."""

    def run(self) -> list[nodes.Node]:
        listed = patterns(self.env)
        names = sorted(self.env.found_docs)
        return self.of([name for name in names if not any(fnmatchcase(name, p) for p in listed)])


def patterns(env: BuildEnvironment) -> list[str]:
    """Return the entries of all lists of pages, and the root page."""
    docs = Path(env.srcdir)
    found = [env.config.root_doc]
    for name in env.found_docs:
        text = Path(env.doc2path(name)).read_text()
        folder = Path(env.doc2path(name)).parent.relative_to(docs).as_posix()
        for block in _LIST.findall(text):
            entries = [line.strip() for line in block.splitlines()]
            found += [normpath(join(folder, e)) for e in entries if e and not e.startswith(":")]
    return found


def resolve_outside_links(app: Sphinx, doctree: nodes.document) -> None:
    """Resolve links to files and folders of the repository that are not in ``docs/``."""
    docs = Path(app.srcdir)
    root = docs.parent
    name = app.env.docname
    # The text of a page that includes a file has the links of that file.
    folder = root if name in INCLUDED.values() else Path(app.env.doc2path(name)).parent
    for link in list(doctree.findall(pending_xref)):
        target, _, anchor = link["reftarget"].partition("#")
        if link["reftype"] != "myst" or not target or target in app.env.found_docs:
            continue
        path = Path(normpath(folder / target))
        if link["refdomain"] == "doc" and not path.exists():
            path = path.with_name(f"{path.name}.md")
        if not path.is_relative_to(root) or not path.exists():
            continue  # a mistake, of which the resolver warns
        page = INCLUDED.get(path.relative_to(root).as_posix())
        if page is None:
            link.replace_self(link.children)
        else:
            # The root page stands for the README, but has no section of it.
            anchor = (link.get("reftargetid") or anchor or None) if page != "index" else None
            link.attributes.update(refdomain="doc", reftarget=page, reftargetid=anchor)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directives and the hook."""
    app.add_directive("pages", Pages)
    app.add_directive("other-pages", OtherPages)
    app.connect("doctree-read", resolve_outside_links)
    return {"parallel_read_safe": True}
