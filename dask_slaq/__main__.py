"""Entry point of ``python -m dask_slaq``, with the same commands as ``dask slaq``."""

from __future__ import annotations

from dask_slaq.cli import slaq

if __name__ == "__main__":
    slaq(prog_name="python -m dask_slaq")
