"""Every notebook in examples/ runs from top to bottom, and shows what it should."""

import re
import textwrap
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
jupyter_client = pytest.importorskip("jupyter_client")

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples").glob("*.ipynb"))

ALERTS = """
    from distributed import LocalCluster
    import dask_slaq as slaq
    client = LocalCluster(1, processes=False, dashboard_address=None).get_client()
    client.register_plugin(slaq.SlaqPlugin())
    slaq.alerts()
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    notebook = nbformat.read(path, as_version=4)
    stored = str([cell.get("outputs") for cell in notebook.cells])
    assert "text/html" in stored and len(stored) < 150_000, "commit it with outputs, small ones"
    assert not re.search(r"tcp://|root@|File \"/|Traceback", stored)
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", ())]
    text = "".join(str(out.get("data", "")) + str(out.get("text", "")) for out in outputs)
    assert "text/html" in text
    if path.stem == "first-steps":
        assert "image/png" in text
    else:
        assert "paused: unpause it" in text


@pytest.mark.slow
def test_alerts_appear_below_their_cell_after_it_has_ended():
    manager, client = jupyter_client.manager.start_new_kernel(kernel_name="python3")
    try:
        first = client.execute(textwrap.dedent(ALERTS))
        assert client.get_shell_msg(timeout=120)["content"]["status"] == "ok"
        client.execute("slaq.submit(slaq.report, 0.5, name='a').result()")
        message = {"msg_type": ""}
        while message["msg_type"] != "update_display_data":
            message = client.get_iopub_msg(timeout=60)
        assert message["parent_header"]["msg_id"] == first
        shown = message["content"]["data"]["text/plain"]
        assert "done: a: ended after 1 iterations" in shown
        assert "with a loss of 0.5" in shown
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
