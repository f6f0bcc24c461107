"""Requests of clients and workers: what is allowed, and what they change."""

from dask_slaq.scheduler.requests.handlers import MOST_AUDITED_CHANGES, Messages

__all__ = ["MOST_AUDITED_CHANGES", "Messages"]
