"""What needs a library that is not installed says how to install it."""

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
