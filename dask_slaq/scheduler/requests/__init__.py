"""Requests of clients and workers: what is allowed, and what they change."""

from dask_slaq.scheduler.requests.audit import audit
from dask_slaq.scheduler.requests.handlers import Messages, at_work

__all__ = ["Messages", "at_work", "audit"]
