"""Requests of clients and workers: what is allowed, and what they change."""

from dask_slaq.scheduler.requests.audit import at_work, audit
from dask_slaq.scheduler.requests.handlers import Messages

__all__ = ["Messages", "at_work", "audit"]
