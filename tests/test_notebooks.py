"""Every notebook in examples/ runs from top to bottom, and shows what it should."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "commit it without outputs"
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    text = "".join(str(out.get("data", "")) + str(out.get("text", "")) for out in outputs)
    assert "text/html" in text
    if path.stem == "first-steps":
        assert "image/png" in text
    else:
        assert "paused: resume it" in text
