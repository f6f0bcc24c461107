"""Versions of installed libraries, and status of adapters and repairs, for `show_versions`."""

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
    "xgboost-cpu",  # smaller package of the same module
    "lightgbm",
    "torch",
    "skorch",
    "lightning",
    "keras",
    "transformers",
)


def versions() -> dict[str, dict[str, str]]:
    """Return the sections that `show_versions` prints, without importing any library.

    ``versions`` has the installed release of each library, ``adapters`` and ``repairs`` whether
    each training loop and repair is active, or why not. Raises `InvalidSetting` if
    ``slaq.repairs`` is invalid.
    """
    import dask

    from dask_slaq.adapters import loop_states, repairs

    loops = loop_states()
    if not dask.config.get("slaq.instrument", True):
        loops = {name: f"{state}; off in jobs (slaq.instrument)" for name, state in loops.items()}
    return {
        "versions": {"python": python_version(), **{name: _release(name) for name in LIBRARIES}},
        "adapters": loops,
        "repairs": repairs.states(),
    }


def show_versions(file: IO[str] | None = None) -> None:
    """Print the versions of installed libraries, and the active adapters and repairs.

    Parameters
    ----------
    file : file, optional
        Text stream to print to. Defaults to standard output.

    Raises
    ------
    InvalidSetting
        The value of ``slaq.repairs`` is invalid.
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
