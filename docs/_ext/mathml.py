"""Renderer of formulas as MathML, which browsers show without a script from another site."""

from __future__ import annotations

from html import escape
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from docutils import nodes
from latex2mathml.converter import convert_to_element
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

logger = logging.getLogger(__name__)


def inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    writer.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    writer.body.append(f'<div class="formula">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """Return a formula as MathML; one that cannot be converted gives a warning."""
    try:
        formula = convert_to_element(node.astext(), display=display)
    except Exception as error:
        logger.warning("formula %r: %r", node.astext(), error, location=node)
        return f"<code>{escape(node.astext())}</code>"
    for each in list(formula.iter()):
        mend(each)
    return tostring(formula, encoding="unicode").replace("&amp;#x", "&#x")


def mend(each: Element) -> None:
    """Mend what the converter leaves to fonts: a space after functions, and bars over formulas."""
    if each.tag == "mover" and each[-1].text in ("&#x02015;", "\u2015"):
        each.tag = "mrow"
        each.set("style", "border-top: 1px solid")
        each.remove(each[-1])
    elif each.tag == "mi" and len(each.text or "") > 2 and (each.text or "").isalpha():
        name, each.text, each.tag = each.text, None, "mrow"
        SubElement(each, "mi").text = name
        SubElement(each, "mspace", width="0.17em")


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
