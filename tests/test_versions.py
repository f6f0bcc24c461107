"""`show_versions` tells what is installed and what is active."""

from __future__ import annotations

import io
import subprocess
import sys
import textwrap

import dask
import distributed
from driving import PATIENCE

import dask_slaq
from dask_slaq.versions import versions


def in_subprocess(code):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_prints_every_section():
    out = io.StringIO()
    dask_slaq.show_versions(out)
    lines = [line.split(None, 1) for line in out.getvalue().splitlines()]
    assert ["distributed", distributed.__version__] in lines
    assert {"versions", "adapters", "repairs"} <= {line[0] for line in lines if len(line) == 1}
    assert {"pca", "dask_glm.algorithms.admm"} <= {line[0] for line in lines if line}


def test_imports_no_library():
    out = in_subprocess("""
        import dask_slaq, sys
        from dask_slaq.versions import versions
        shown = versions()
        print(*{"dask_glm", "dask_ml", "sklearn", "torch"} & set(sys.modules))
        print(*{*shown["adapters"].values(), *shown["repairs"].values()}, sep=", ")
    """)
    assert out[0] == ""
    assert set(out[1].split(", ")) == {"library not imported", "not before the first block"}


def test_states_follow_blocks_and_settings():
    import dask_glm.algorithms  # noqa: F401

    name = "dask_glm.algorithms.lbfgs"
    assert versions()["adapters"][name] == "ready for a block"
    with dask_slaq.instrument(print):
        assert versions()["adapters"][name] == "active"
    with dask.config.set({"slaq.instrument": False, "slaq.repairs": ["pca"]}):
        shown = versions()
    assert shown["adapters"][name] == "ready for a block; off in jobs (slaq.instrument)"
    assert shown["repairs"]["r2-score"] == "off"
    assert shown["repairs"]["pca"] != "off"
