"""Requests of clients and workers: what is allowed, and what they change."""

from dask_slaq.scheduler.requests.audit import audit, current_plugin
from dask_slaq.scheduler.requests.handlers import Messages

__all__ = ["Messages", "audit", "current_plugin"]
