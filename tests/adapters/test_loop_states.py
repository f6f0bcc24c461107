"""Whether loops are observed is told without an import of their libraries."""

import subprocess
import sys

from driving import PATIENCE

import dask_slaq
from dask_slaq.adapters import loop_states

SHOWN = """
import sys
import dask_slaq
from dask_slaq.adapters import loop_states
with dask_slaq.instrument(print):
    assert {*loop_states().values()} == {"library not imported"}
assert "xgboost" in dir(dask_slaq) and dask_slaq.xgboost.LOOPS
assert {"dask_glm", "dask_ml", "sklearn", "scipy", "torch", "xgboost"}.isdisjoint(sys.modules)
"""


def test_neither_states_nor_names_of_the_package_import_a_library():
    subprocess.run([sys.executable, "-c", SHOWN], check=True, timeout=PATIENCE)


def test_states_follow_blocks():
    import dask_glm.algorithms  # noqa: F401

    name = "dask_glm.algorithms.lbfgs"
    assert loop_states()[name] == "ready for a block"
    with dask_slaq.instrument(print):
        assert loop_states()[name] == "active"
