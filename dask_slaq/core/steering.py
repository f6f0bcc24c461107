"""Changes while jobs run: their settings and limits, pauses, and the policy."""

from __future__ import annotations

import math

from dask_slaq.core.jobs import Jobs
from dask_slaq.core.owners import Owners, OwnerTerms
from dask_slaq.core.policies import Policy
from dask_slaq.core.policies import policy as policy_named
from dask_slaq.core.settings import check_job_settings

__all__ = ["Steering"]


class Steering:
    """What may be changed of an `Engine` while its jobs run; the next decision goes by it."""

    jobs: Jobs
    policy: Policy
    owners: Owners | None

    def set_floor(self, job: str, threads: float) -> bool:
        """Set the floor of a job to a number of `threads`, 0 for none.

        Returns
        -------
        bool
            Whether the floor changed.

        Raises
        ------
        UnknownJob
        """
        return self._set("floor", job, threads)

    def set_max_iter(self, job: str, max_iter: int | None) -> bool:
        """Set the total iterations, `max_iter`, of a job; None if unknown.

        Returns
        -------
        bool
            Whether the maximum changed.

        Raises
        ------
        UnknownJob, InvalidSetting
        """
        check_job_settings(max_iter=max_iter)
        return self._set("max_iter", job, math.inf if max_iter is None else max_iter)

    def set_job(
        self,
        job: str,
        *,
        weight: float | None = None,
        min_share: float | None = None,
        max_share: float | None = None,
        target: float | None = None,
        latest: float | None = None,
    ) -> None:
        """Change settings of a running job; those that are None stay. See `add_job`.

        Parameters
        ----------
        job : str
        weight : float, optional
        min_share, max_share : float, optional
            Threads. A `min_share` of 0 and a `max_share` of inf remove the limit.
        target : float, optional
            Loss, in raw units.
        latest : float, optional
            Factor of the fair time.

        Raises
        ------
        UnknownJob, InvalidSetting
            Nothing was changed.
        """
        column, row, now = self.jobs.table.column, self.jobs.row(job), self.jobs[job]
        floor = now.min_share if min_share is None else min_share
        most = now.max_share if max_share is None else max_share
        most = None if most == math.inf else most
        check_job_settings(
            now.weight if weight is None else weight, floor, most, target, latest=latest
        )
        column["floor"][row] = floor or 0.0
        column["most"][row] = math.inf if most is None else most
        if weight is not None:
            column["weight"][row] = weight
        if target is not None:
            column["target"][row] = target
        if latest is not None:
            column["latest"][row] = latest

    def pause(self, job: str, paused: bool = True) -> None:
        """Grant a job no threads from the next decision on, or again if not `paused`.

        Raises
        ------
        UnknownJob
        """
        self.jobs.table.column["paused"][self.jobs.row(job)] = paused

    def set_policy(self, policy: str | Policy) -> None:
        """Decide by another policy from the next decision on.

        Raises
        ------
        UnknownPolicy
        """
        self.policy = policy_named(policy) if isinstance(policy, str) else policy

    def set_owner(self, owner: str, terms: OwnerTerms) -> None:
        """Set the `terms` of an `owner`. If there were none of any owner, jobs share by owner now.

        Its `latest` is given to later jobs by whoever adds them.
        """
        if self.owners is None:
            self.owners = Owners({})
        self.owners.terms = {**self.owners.terms, owner: terms}

    def _set(self, setting: str, job: str, value: float) -> bool:
        column, row = self.jobs.table.column[setting], self.jobs.row(job)
        changed = bool(column[row] != value)
        column[row] = value
        return changed
