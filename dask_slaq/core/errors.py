"""Exceptions raised to the caller, each named after the mistake.

Every message is one sentence that names the value and what is allowed.
A call that raises one of these exceptions has changed nothing.
"""

from __future__ import annotations

import math

#: What code of others may raise that is called in the scheduler. `SystemExit` would end that.
BROKEN = (Exception, SystemExit)


class SlaqError(Exception):
    """Base class of the exceptions of this package."""


class UnknownJob(SlaqError, KeyError):
    """Use of the name of a job that is not running."""

    def __str__(self) -> str:
        # KeyError would show the repr of the message.
        return Exception.__str__(self)


class DuplicateJob(SlaqError, ValueError):
    """Addition of a job under the name of a running job."""


class NonFiniteLoss(SlaqError, ValueError):
    """Loss that is not a number, or target that is not a finite one."""


class UnknownPolicy(SlaqError, ValueError):
    """Name of a policy that does not exist."""


class InvalidSetting(SlaqError, ValueError):
    """Setting with a name or value that is not allowed."""


class NoPlugin(SlaqError, RuntimeError):
    """Use of a scheduler that does not run the plugin."""


class NotAllowed(SlaqError, PermissionError):
    """Change of a job or of the policy by someone who may not change it."""


class StopTraining(SlaqError):
    """Request to end a training loop, raised by the next report of a job that was stopped.

    `loss` and `step` are those of the report, in a task of a search.

    Examples
    --------
    >>> try:  # in a training loop
    ...     raise StopTraining("job 'a' was stopped")
    ... except StopTraining:
    ...     print("keep the model so far")
    keep the model so far
    """

    loss = math.nan
    step = 0


class TrialPruned(StopTraining):
    """Request to end the training of a model that its search gave up; see `dask_slaq.search`.

    Examples
    --------
    >>> issubclass(TrialPruned, StopTraining)
    True
    """
