"""Jobs: blocks of training code whose Dask tasks and losses belong together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dask_slaq.client.job_block import Job, running_job
from dask_slaq.client.validation import seconds_of
from dask_slaq.core.errors import UnknownJob
from dask_slaq.core.memory import check_kind
from dask_slaq.core.settings import check_job_settings, check_name, check_owner, check_resources
from dask_slaq.worker import report_trial

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Job", "job", "report"]


def job(
    name: str,
    *,
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    latest: float | None = None,
    resources: Mapping[str, float] | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    gang: bool = False,
    target_kind: str = "loss",
    by: str | float | None = None,
    stop: bool = False,
    kind: str | Mapping[str, Any] | None = None,
    owner: str | None = None,
    spare: bool = False,
    client: Client | None = None,
) -> Job:
    """Create a job: a block of code whose Dask tasks and losses belong to one training run.

    Parameters
    ----------
    name : str
        Name of the job, unique among the jobs running on the scheduler.
    weight : float
        Relative importance, > 0.
    min_share, max_share : float, optional
        Least threads of the job, and most while other jobs want them.
    latest : float, optional
        Factor of its fair time, at least 1, at which the job ends at the latest; inf for no
        promise. Defaults to the ``slaq.latest`` setting of the scheduler.
    resources : Mapping of str to float, optional
        Worker resources that each task of the job needs, such as ``{"GPU": 1}``. The job is only
        granted workers that supply them.
    target : float, optional
        Loss to reach. Policies that rank jobs by the work left count up to it, and it stands in
        for the predicted final loss while the loss cannot be extrapolated.
    max_iter : int, optional
        Maximum number of losses that the job will report; no loss reduction is predicted beyond
        it. Detected automatically for a job with a single fit of a supported library.
    gang : bool
        Whether tasks that are ready together must start together.
    target_kind : {"loss", "reduction"}
        Whether `target` is a loss, or a part of the predicted loss reduction, in (0, 1).
    by : str or float, optional
        Time in which the target should be reached, such as ``"10min"`` or in seconds. An alert
        tells when it will not be; see `alerts`.
    stop : bool
        Whether the job is stopped at its target: its next report raises `StopTraining`. Otherwise
        it goes on with its `min_share` and what other jobs leave.
    kind : str or mapping, optional
        Jobs of one kind have loss curves of like shape, so past ones tell how this one will go:
        a name such as ``"resnet"``, or a mapping with the name and numbers >= 0 that shape the
        curve, such as ``{"name": "resnet", "lr": 0.01, "rows": 1e6}``. Supported libraries state
        it automatically. Defaults to the job's name without its numbers.
    owner : str, optional
        Who the job belongs to. Defaults to the ``slaq.owner`` setting, or else ``user@host``.
    spare : bool
        Whether a task that runs late gets a second copy on an idle thread; the first result counts.
        Only for tasks that may run twice.
    client : distributed.Client, optional
        Client of the job. Defaults to the current client.

    Returns
    -------
    Job
        A context manager. Entering it raises `DuplicateJob` if the name is taken, and
        `InvalidSetting` if ``slaq.repairs`` is invalid. If the scheduler does not run the plugin,
        the job runs under plain Dask with one warning per client; with ``slaq.require-plugin``,
        `NoPlugin` is raised.

    Raises
    ------
    InvalidSetting
        The name or a setting is invalid.

    Examples
    --------
    >>> with job("logreg-C0.1"):  # doctest: +SKIP
    ...     LogisticRegression(solver="gradient_descent").fit(X, y)
    """
    check_name(name)
    seconds = None if by is None else seconds_of(by)
    check_job_settings(
        weight,
        min_share,
        max_share,
        target,
        max_iter,
        latest,
        gang,
        target_kind,
        seconds,
        stop,
    )
    settings = {
        "weight": weight,
        "min_share": min_share,
        "max_share": max_share,
        "latest": latest,
        "target": target,
        "max_iter": max_iter,
        "gang": gang,
        "target_kind": target_kind,
        "by": seconds,
        "stop": stop,
        "kind": check_kind(kind),
        "resources": check_resources(resources),
        "spare": bool(spare),
    }
    return Job(name, settings, check_owner(owner), client)


def report(loss: float) -> None:
    """Report the loss of the next iteration: of the current job, or of the model of this task.

    In a job block it returns at once; see `Job.report`. In a task of a `search` it may wait while
    other models gain more. In another task it returns at once, with one warning.

    Parameters
    ----------
    loss : float
        Lower is better, unless the search maximizes. It must be finite, except in a task: there
        nan and infinity are the loss of a model that diverges.

    Raises
    ------
    NonFiniteLoss
        The loss is not a number, or not finite.
    UnknownJob
        Called neither in a job block nor in a task, or in a thread started there: use `Job.report`.
    StopTraining
        The job or search was stopped; `TrialPruned` if the search gave this model up.
    """
    current = running_job.get()
    if current is not None:
        current.report(loss)
    elif not report_trial(loss):
        raise UnknownJob(
            "report() was called outside a job: call it in a 'with dask_slaq.job(name)' block or "
            "in a task of a 'with dask_slaq.search(name)' block, or use job.report"
        )
