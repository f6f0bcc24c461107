"""Searches: blocks in which many models are submitted, one task each."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import dask
from distributed.client import Future

from dask_slaq.client.connection import request
from dask_slaq.client.job_block import Job, seconds_of
from dask_slaq.core.errors import SlaqError
from dask_slaq.core.settings import check_job_settings, check_name, check_owner, check_resources
from dask_slaq.core.trials import SearchSettings
from dask_slaq.worker import report_trial

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Search", "search"]

logger = logging.getLogger(__name__)


class Search(Job):
    """Search for a good model among many, used as a ``with`` or ``async with`` block.

    Create it with `search`, which documents the parameters.

    Attributes
    ----------
    name : str
    futures : list of distributed.Future
        Those of the models that were submitted before, if it has found a search that was kept.
    """

    _observes = False
    _entered_with: Client | None = None
    _files: Mapping[str, str] = MappingProxyType({})  # annotation of the folder of states

    def trials(self) -> Any:
        """Return what the trials of the search do, also after its block was left.

        Returns
        -------
        list of dict
            Per trial: ``key`` of its task, ``trial`` (its number, where one task trains several
            models), ``worker`` (address), ``iteration`` (steps), ``loss`` (the last one),
            ``predicted``, ``low`` and ``high`` (predicted final loss, with its 80 % band; nan
            without a forecast), ``state`` (``ready``, ``training``, ``waiting`` in a report,
            ``away`` from all workers, ``done``, ``pruned``, ``stopped``, ``failed``), ``computed``
            and ``waited`` (seconds).
            Losses are as they were reported. With an asynchronous client, an awaitable is returned.

        Raises
        ------
        SlaqError
            The block was not entered yet.
        NoPlugin
            The scheduler no longer runs the plugin.
        """
        if self._entered_with is None:
            raise SlaqError(f"search {self.name!r} has not begun: enter its 'with' block first")
        return self._entered_with.sync(self._trials, self._entered_with)

    def report(self, loss: float, step: int | None = None, *, state: Any = None) -> None:
        """Report the loss of the running task's model; see `report`."""
        # Tasks of an in-process cluster may run in the context of the block.
        if not report_trial(loss, step=step, state=state):
            raise SlaqError(
                f"report() was called in the block of search {self.name!r}: call it in the "
                "function that trains a model, in its task"
            )

    def reporter(self) -> NoReturn:
        """Raise SlaqError: the tasks of a search call `report` themselves."""
        raise SlaqError(f"the tasks of search {self.name!r} call dask_slaq.report(loss) themselves")

    async def _trials(self, client: Client) -> list[dict[str, Any]]:
        if self._plain:
            return []
        return list(await request(client, "slaq_trials", run=self._run))

    def _enter(self, client: Client) -> Search:
        super()._enter(client)
        self._entered_with = client
        found = self._opened.get("keys", ()) if isinstance(self._opened, dict) else ()
        self.futures = [Future(key, client) for key in found]
        if self.futures:
            wanted = [future.key for future in self.futures]
            client._send_to_scheduler(
                {"op": "client-desires-keys", "keys": wanted, "client": client.id}
            )
        if not self._plain:
            self._stack.enter_context(dask.annotate(slaq_search=self._run, **self._files))
        return self

    async def _close(self, client: Client, outcome: str = "done") -> None:
        if client.status == "running" and not self._plain and not self._over(client):
            if outcome == "failed" and self._settings["search"]["keep"] is not None:
                logger.warning(
                    "search %r goes on for %g s without its block: slaq.stop(%r) ends it, "
                    "slaq.search(%r, reattach=True) finds it again",
                    *(self.name, self._settings["search"]["keep"], self.name, self.name),
                )
            # On the stream of the submitted tasks, after which it must arrive.
            message = {"op": "slaq-leave", "job": self.name, "run": self._run}
            client._send_to_scheduler({**message, "failed": outcome == "failed"})
            # The next block may have the same name, and opens in a request, which could overtake.
            await request(client, "slaq_left", run=self._run)


def search(
    name: str,
    *,
    goal: str = "best",
    steps: int | None = None,
    maximize: bool = False,
    prune: bool = False,
    max_waiting: int = 100,
    trial_timeout: str | float | None = None,
    states: str | None = None,
    keep: str | float | None = None,
    reattach: bool = False,
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    latest: float | None = None,
    resources: Mapping[str, float] | None = None,
    owner: str | None = None,
    client: Client | None = None,
) -> Search:
    """Create a search: a block in which many models are submitted, one task each.

    The tasks that call `report` are its trials. In a report, a model may wait while its thread goes
    to another that gains more; no result changes. Leaving the block does not end the search: it
    ends with its last task. If an exception leaves the block, what waits goes on at once.

    Parameters
    ----------
    name : str
        Name of the search, unique among the jobs running on the scheduler.
    goal : {"best", "all"}
        Threads go to the models with the lowest predicted final loss, so that the best ones are
        ready soon, or to those whose loss falls fastest, so that all are good soon.
    steps : int, optional
        Maximum number of steps of a model, which are its reports unless these name their steps.
        Forecasts are better with it.
    maximize : bool
        Whether models report scores, which are higher for better models.
    prune : bool
        Whether the report of a model without hope raises `TrialPruned`: after eight reports, if
        the lower end of its predicted final loss is above the best loss of the search by more than
        a tenth of the distance from its own first loss to the best.
    max_waiting : int
        About how many models may have begun and wait: a few per worker may be on their way. Each
        keeps its memory. A worker above 60 % of its memory limit lets no further ones wait.
    trial_timeout : str or float, optional
        Time that a model may compute, as ``"10min"`` or in seconds. The next report after it raises
        `TrialPruned`.
    states : str, optional
        Path or URL of a folder for the states of the models, by fsspec. They outlive the cluster: a
        search of this name whose tasks have the same keys goes on from them. The files are removed
        when the search ends with its last task. By default, Dask keeps states in the memory of two
        workers.
    keep : str or float, optional
        Time, as ``"10min"`` or in seconds, for which the search goes on, with its results, after
        its program has ended or an exception has left its block. By default it ends with its
        program, and goes on as plain tasks after an exception.
    reattach : bool
        Whether to take over a search of this name and owner that is kept: its models, and their
        futures in the `futures` of the search. If there is none, a new one begins.
    weight, min_share, max_share, latest, resources, owner, client
        As of `job`; the resources are what each task needs.

    Returns
    -------
    Search
        A context manager. Entering it raises `DuplicateJob` if the name is taken. If the scheduler
        does not run the plugin, the tasks run under plain Dask with one warning per client.

    Raises
    ------
    InvalidSetting

    Examples
    --------
    >>> with search("grid", steps=40) as grid_search:  # doctest: +SKIP
    ...     futures = client.map(train, grid)
    >>> grid_search.trials()  # doctest: +SKIP
    """
    check_name(name)
    check_job_settings(weight, min_share, max_share, latest=latest)
    if isinstance(trial_timeout, str):
        trial_timeout = seconds_of(trial_timeout, "trial_timeout")
    if isinstance(keep, str):
        keep = seconds_of(keep, "keep")
    # The name is one part of the path, whatever it is.
    part = quote(name, safe=" ")
    if part.startswith("."):
        part = f"%2E{part[1:]}"
    folder = None if states is None else f"{states}/{part}"
    options = SearchSettings(
        goal, steps, maximize, prune, max_waiting, trial_timeout, folder, keep=keep
    )
    settings = {
        "weight": weight,
        "min_share": min_share,
        "max_share": max_share,
        "latest": latest,
        "resources": check_resources(resources),
        "search": asdict(options),
        **({"reattach": True} if reattach else {}),
    }
    made = Search(name, settings, check_owner(owner), client)
    if folder is not None:
        made._files = {"slaq_states": folder}
    return made
