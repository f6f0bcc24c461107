"""Checks of settings: of an engine, of a job, and of names and resources."""

from dask_slaq.core.settings.engine import NORMALIZERS, check_engine_settings
from dask_slaq.core.settings.job import check_job_settings, check_latest, is_number
from dask_slaq.core.settings.names import (
    ALERT_TOPIC,
    ALERTS,
    AUDIT_TOPIC,
    ENDS,
    LONGEST_NAME,
    NOT_STARTED,
    STEER_TOPIC,
    check_limits,
    check_name,
    check_owner,
    check_resources,
    shown,
)
from dask_slaq.core.settings.notify import NoticeTerms, check_notify

__all__ = [
    "ALERTS",
    "ALERT_TOPIC",
    "AUDIT_TOPIC",
    "ENDS",
    "LONGEST_NAME",
    "NORMALIZERS",
    "NOT_STARTED",
    "STEER_TOPIC",
    "NoticeTerms",
    "check_engine_settings",
    "check_job_settings",
    "check_latest",
    "check_limits",
    "check_name",
    "check_notify",
    "check_owner",
    "check_resources",
    "is_number",
    "shown",
]
