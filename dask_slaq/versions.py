"""`show_versions`: what is installed here, and which adapters and repairs are active or why not."""

from __future__ import annotations

import sys
from importlib import metadata
from platform import python_version
from typing import IO, Any

LIBRARIES = (
    "dask-slaq",
    "dask",
    "distributed",
    "dask-ml",
    "dask-glm",
    "scikit-learn",
    "numpy",
    "scipy",
    "xgboost",
    "xgboost-cpu",  # the same module in a smaller package
    "lightgbm",
    "torch",
    "skorch",
    "lightning",
)


def versions() -> dict[str, dict[str, str]]:
    """What `show_versions` prints: by section, a text by name. Imports no library.

    Returns
    -------
    dict
        ``versions``: releases that are installed. ``adapters``: by training loop, ``active`` or
        why it is not observed now. ``repairs``: by name in ``slaq.repairs``, ``active`` or why not.

    Raises
    ------
    InvalidSetting
        ``slaq.repairs`` is not as it should be.
    """
    import dask

    from dask_slaq.adapters import loop_states
    from dask_slaq.adapters.compat import repairs

    loops = loop_states()
    if not dask.config.get("slaq.instrument", True):
        loops = {name: f"{state}; off in jobs (slaq.instrument)" for name, state in loops.items()}
    return {
        "versions": {"python": python_version(), **{name: _release(name) for name in LIBRARIES}},
        "adapters": loops,
        "repairs": repairs.states(),
    }


def show_versions(file: IO[str] | None = None) -> None:
    """Print what is installed in this process's environment, and what of us is active.

    Parameters
    ----------
    file : file, optional
        Standard output by default.

    Raises
    ------
    InvalidSetting
        ``slaq.repairs`` is not as it should be.
    """
    print("\n\n".join(_section(*item) for item in versions().items()), file=file or sys.stdout)


def _section(title: str, lines: dict[str, Any]) -> str:
    width = max(map(len, lines))
    return "\n".join([title, *(f"  {name:<{width}}  {text}" for name, text in lines.items())])


def _release(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
