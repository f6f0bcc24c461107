"""Board: pages of the Dask dashboard that show jobs, and who uses what."""

from dask_slaq.scheduler.board.routes import add_pages

__all__ = ["add_pages"]
