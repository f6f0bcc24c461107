"""What needs a library that is not installed says how to install it."""

import subprocess
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize(
    ("module", "extra", "hidden"),
    [
        ("xgboost", "xgboost", ["xgboost.callback"]),
        ("optuna", "optuna", ["optuna"]),
        ("skorch", "torch", ["skorch.callbacks"]),
        ("keras", "keras", ["keras.callbacks"]),
        ("transformers", "transformers", ["transformers"]),
        ("lightning", "torch", ["lightning", "lightning.pytorch", "pytorch_lightning"]),
    ],
)
def test_says_what_to_install(monkeypatch, module, extra, hidden):
    adapter = import_module(f"dask_slaq.adapters.{module}")
    for library in hidden:
        monkeypatch.setitem(sys.modules, library, None)
    message = rf"{module} is not installed: pip install dask-slaq\[{extra}\]"
    with pytest.raises(ImportError, match=message):
        adapter._made()  # what `__getattr__` makes once
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = adapter.Nothing


FRESH = """
import subprocess
import sys
import dask_slaq
from dask_slaq import adapters
assert dask_slaq.adapters is adapters and "adapters" in dir(dask_slaq)
names = set(dir(adapters)) - {"end_calls", "instrument", "loop_states", "observe_fits"}
assert {"sklearn", "xgboost"} < names
for name in names:
    assert getattr(adapters, name).__name__ == f"dask_slaq.adapters.{name}"
    assert name == "joblib" or name not in sys.modules, name
assert adapters.sklearn.SlaqReport and not hasattr(adapters, "nothing")
assert {"os", "Any", "import_module", "annotations"}.isdisjoint(dir(dask_slaq))
assert set(dask_slaq.__all__) < set(dir(dask_slaq))
sys.modules["skorch.callbacks"] = None
try:
    hasattr(dask_slaq.adapters.skorch, "SlaqReport")
except ImportError as error:
    assert str(error) == "skorch is not installed: pip install dask-slaq[torch]"
else:
    raise AssertionError
"""


def test_adapters_are_attributes_and_import_no_library():
    """As docs/adapters.md and the warning of a search write them."""
    run = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True)
    assert not run.returncode, run.stderr
