"""`show_versions` tells what is installed and what is active."""

import io
import subprocess
import sys

import dask
import distributed
from driving import PATIENCE

import dask_slaq
from dask_slaq.versions import versions


def test_prints_every_section():
    out = io.StringIO()
    dask_slaq.show_versions(out)
    lines = [line.split(None, 1) for line in out.getvalue().splitlines()]
    assert ["distributed", distributed.__version__] in lines
    assert {"versions", "adapters", "repairs"} <= {line[0] for line in lines if len(line) == 1}
    assert {"pca", "dask_glm.algorithms.admm"} <= {line[0] for line in lines if line}


SHOWN = """
import sys
import dask_slaq
from dask_slaq.versions import versions
shown = versions()
assert {*shown["adapters"].values()} == {"library not imported"}
assert {*shown["repairs"].values()} == {"not before the first block"}
assert "xgboost" in dir(dask_slaq) and dask_slaq.xgboost.LOOPS
assert {"dask_glm", "dask_ml", "sklearn", "torch", "xgboost"}.isdisjoint(sys.modules)
"""


def test_neither_versions_nor_names_of_the_package_import_a_library():
    subprocess.run([sys.executable, "-c", SHOWN], check=True, timeout=PATIENCE)


def test_states_follow_blocks_and_settings():
    import dask_glm.algorithms  # noqa: F401

    name = "dask_glm.algorithms.lbfgs"
    assert versions()["adapters"][name] == "ready for a block"
    with dask_slaq.instrument(print):
        assert versions()["adapters"][name] == "active"
    with dask.config.set({"slaq.instrument": False, "slaq.repairs": False}):
        shown = versions()
    assert shown["adapters"][name] == "ready for a block; off in jobs (slaq.instrument)"
    assert {*shown["repairs"].values()} == {"off"}
