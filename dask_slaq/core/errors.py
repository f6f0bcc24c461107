"""Errors raised at the caller, each named after the mistake.

Every message is one plain sentence that names the value and what is allowed.
A call that raises one of these has changed nothing.
"""

from __future__ import annotations

__all__ = [
    "DuplicateJob",
    "InvalidSetting",
    "NoPlugin",
    "NonFiniteLoss",
    "SlaqError",
    "UnknownJob",
    "UnknownPolicy",
]


class SlaqError(Exception):
    """Base of every error of this package."""


class UnknownJob(SlaqError, KeyError):
    """A job was named that is not running."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence needs no quotes.
        return Exception.__str__(self)


class DuplicateJob(SlaqError, ValueError):
    """A job was added under the name of a running one."""


class NonFiniteLoss(SlaqError, ValueError):
    """A reported loss is not a finite number."""


class UnknownPolicy(SlaqError, ValueError):
    """A policy was named that does not exist."""


class InvalidSetting(SlaqError, ValueError):
    """A setting has a value or a name that is not allowed."""


class NoPlugin(SlaqError, RuntimeError):
    """The scheduler does not run the plugin."""
