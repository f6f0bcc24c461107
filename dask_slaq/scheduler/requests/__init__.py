"""Requests of clients and workers: what is allowed, and what they change."""

from dask_slaq.scheduler.requests.audit import MOST_AUDITED, audit
from dask_slaq.scheduler.requests.handlers import Messages

__all__ = ["MOST_AUDITED", "Messages", "audit"]
