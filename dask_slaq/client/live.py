"""What a notebook or a terminal shows of jobs: tables, progress until they end, and alerts."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from html import escape
from typing import Any

from distributed import Client

from dask_slaq.client.block import running_job
from dask_slaq.client.connection import current_client, go_without, request
from dask_slaq.client.trials_table import as_cells, as_html, html_row, in_words
from dask_slaq.core.errors import InvalidSetting, NoPlugin
from dask_slaq.core.jobs.columns import JOB_COLUMNS, rows
from dask_slaq.core.settings import ALERT, ENDS, shown
from dask_slaq.core.text import aligned, in_threads, printable

logger = logging.getLogger(__name__)

#: Columns of tables in notebooks, and of the progress in a terminal.
COLUMNS = tuple(column for column in JOB_COLUMNS if column.notebook)
HEADINGS = tuple(column.title or column.name for column in COLUMNS)
LEFT = [k for k, column in enumerate(COLUMNS) if column.left]
#: States of models that have ended.
ENDED = (*ENDS, "pruned")
# Notebooks align cells to the right, and headers as told.
_LEFT = ' style="text-align:left"'


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    instance = shell.get_ipython() if shell is not None else None
    return instance is not None and "IPKernelApp" in instance.config


class Status(dict[str, Any]):
    """Result of `status`: a dict with a table for notebooks."""

    def table(self) -> list[list[str]]:
        """Return the texts of `COLUMNS` for each job."""
        return [[column.text(row) for column in COLUMNS] for row in rows(self.get("jobs", {}))]

    def __repr__(self) -> str:
        """Return the table as text; ``dict(status)`` shows all keys."""
        failed = self.get("failed")
        doing = f"plain Dask schedules: {failed}" if failed else f"policy {self.get('policy')}"
        body = self.table()
        lines = aligned([HEADINGS, *body], LEFT) if body else ["no job is running"]
        return "\n".join(
            map(printable, (f"{doing}, {in_threads(self.get('capacity', 0))}", *lines))
        )

    def _repr_html_(self) -> str:
        """Return a table of all jobs."""
        policy, threads = escape(str(self.get("policy"))), in_threads(self.get("capacity", 0))
        title = f"policy <b>{policy}</b>, {threads}"
        if failed := self.get("failed"):
            title += f", <b>plain Dask schedules: {escape(str(failed))}</b>"
        head = html_row("th", HEADINGS, _LEFT)
        body = "".join(html_row("td", cells, _LEFT) for cells in self.table())
        body = body or f'<tr><td colspan="{len(COLUMNS)}"{_LEFT}>no job is running</td></tr>'
        table = f"<div>{title}<table><thead>{head}</thead><tbody>{body}</tbody></table></div>"
        searches = self.get("models", {}).items()
        return table + "".join(as_html(n, m["rows"], m["maximize"]) for n, m in searches)


def progress(
    jobs: str | Sequence[str] | None = None,
    client: Client | None = None,
    *,
    interval: float = 0.5,
    notebook: bool | None = None,
) -> Any:
    """Show jobs live until they have ended, and of searches the best models.

    In a notebook this returns a widget at once, which updates itself; ipywidgets must be
    installed, or the table is shown once. In a terminal it blocks until the jobs have ended. A job
    in whose block it is called cannot end meanwhile: there it waits for its tasks.

    Parameters
    ----------
    jobs : str or sequence of str, optional
        Names of jobs and searches; by default all that run now.
    client : distributed.Client, optional
        Defaults to the current client; it must not be asynchronous.
    interval : float
        Seconds between two updates.
    notebook : bool, optional
        Whether this is a notebook; detected by default.

    Returns
    -------
    ipywidgets.HTML, Status or None
        The widget or table in a notebook. It ends with the last loss and the seconds of each job.
        None in a terminal, and where the scheduler does not run the plugin.

    Raises
    ------
    InvalidSetting, UnknownJob, ImportError
        What is given are no names of jobs, or the client is asynchronous; neither does a job of
        that name run, nor has one ended within a day; a terminal needs rich.

    Examples
    --------
    >>> progress("grid")  # doctest: +SKIP
    """
    client = current_client(client)
    named = [jobs] if isinstance(jobs, str) else jobs
    if named is not None and not (
        isinstance(named, Iterable) and all(isinstance(name, str) for name in named)
    ):
        raise InvalidSetting(
            f"progress() takes names of jobs, not {shown(jobs)}; a client is passed as client="
        )
    named = named and list(named)
    if client.asynchronous:
        raise InvalidSetting("progress() takes no asynchronous client: await slaq.status() there")
    try:
        said = client.sync(_say_of_ended, client, named)
        if in_notebook() if notebook is None else notebook:
            return _widget(Followed(client, named), client, interval)
        print(*said, sep="\n", end="\n" * bool(said))
        if named is None and said:
            return None
        _in_terminal(Followed(client, named, _blocks_here()), client, interval)
    except NoPlugin as error:
        go_without(client, error)
    return None


async def _say_of_ended(client: Client, names: Sequence[str] | None) -> list[str]:
    """Return what there is to say if none of the jobs runs. Raises `UnknownJob`."""
    if names is None:
        return [] if (await request(client, "slaq_status"))["jobs"] else ["no job is running"]
    found = [await request(client, "slaq_explain", job=name) for name in names]
    return [] if any("policy" in each for each in found) else [each["text"] for each in found]


def _blocks_here() -> list[str]:
    """Return the names of the jobs in whose blocks the running code is."""
    found, block = [], running_job.get()
    while block is not None and block.is_open:
        found.append(block.name)
        block = block._outer
    return found


class Followed:
    """Jobs that are followed until they have ended; without names, all that run at first.

    Of those whose blocks are `around` the caller, until no task is left. Models are looked for of
    at most so many searches.
    """

    def __init__(
        self,
        client: Client,
        names: Sequence[str] | None,
        around: Collection[str] = (),
        most_searches: int = 4,
    ) -> None:
        self._most_searches = most_searches
        self._client, self._names, self._around = client, names, around
        self._busy = time.monotonic()  # when tasks were last seen, or may be on their way
        self._last: dict[str, dict[str, Any]] = {}
        self.running = True

    async def look(self) -> Status:
        """Return the status of the jobs; of those that have ended, the last one."""
        found = Status(await request(self._client, "slaq_status"))
        if self._names is None:
            self._names = list(found["jobs"])
        running = {name: found["jobs"][name] for name in self._names if name in found["jobs"]}
        self._last.update(running)
        ended = [
            name
            for name in self._names
            if name not in running and self._last.get(name, {}).get("state") not in ENDS
        ]
        if ended:
            # Their last reports may have come after the last look.
            for event in await request(self._client, "slaq_ended"):
                if event["job"] in ended:
                    self._last[event["job"]] = _ended(event)
        for name in ended:
            if name in self._last:
                state = self._last[name]["state"]
                state = state if state in ENDS else "done"
                self._last[name] = {**self._last[name], "state": state, "share": 0.0}
        jobs = {name: self._last[name] for name in self._names if name in self._last}
        models = {
            name: await request(self._client, "slaq_models", search=name)
            for name in found.get("searches", ())[: self._most_searches]
            if name in self._names
        }
        inside = [name for name in running if name in self._around]
        self.running = len(inside) < len(running) or self._is_busy(inside, jobs, models)
        return Status({**found, "jobs": jobs, "models": models})

    def _is_busy(
        self, names: Collection[str], jobs: Mapping[str, Any], models: Mapping[str, Any]
    ) -> bool:
        """Return whether tasks are left of any of these jobs, in whose blocks the caller waits."""
        if not names:
            return False
        now = time.monotonic()
        for name in names:
            job, rows = jobs[name], models[name]["rows"] if name in models else ()
            begun = job["running"] or job["ready"] or job["state"] in ("running", "waiting")
            if begun or any(row["state"] not in ENDED for row in rows):
                self._busy = now
                return True
        # A large graph takes some seconds to arrive.
        sent = any(f.status == "pending" for f in list(self._client.futures.values()))
        return sent and now - self._busy < 5


def _ended(event: dict[str, Any]) -> dict[str, Any]:
    """Return the last status of a job from the alert that it ended."""
    loss = event.get("loss")
    return {
        "owner": event.get("owner", ""),
        "state": event["event"],
        "iteration": event.get("iteration", 0),
        "loss": math.nan if loss is None else loss,
        "share": 0.0,
        "reason": f"trained for {event.get('seconds', math.nan):.3g} s",
    }


def _widget(followed: Followed, client: Client, interval: float) -> Any:
    first = client.sync(followed.look)
    try:
        from ipywidgets import HTML
    except ImportError:
        return first
    from tornado.ioloop import PeriodicCallback

    widget = HTML(first._repr_html_())

    async def update() -> None:
        try:
            widget.value = (await followed.look())._repr_html_()
        except Exception:  # the cluster is gone: the last table stays
            timer.stop()
            return
        if not followed.running:
            timer.stop()

    timer = PeriodicCallback(update, 1000 * interval)
    client.loop.add_callback(timer.start)  # type: ignore[union-attr]  # never None
    return widget


def _in_terminal(followed: Followed, client: Client, interval: float) -> None:
    try:
        from rich.console import Group
        from rich.live import Live
    except ImportError as error:
        raise ImportError("progress() needs rich: pip install 'dask-slaq[demo]'") from error

    def tables() -> Group:
        found = client.sync(followed.look)
        some = [as_table(HEADINGS, found.table())]
        for name, models in found["models"].items():
            head, body = as_cells(models["rows"], models["maximize"], most=10)
            some.append(as_table(head, body, printable(f"{name}: {in_words(models['rows'])}")))
        return Group(*some)

    with Live(tables(), auto_refresh=False) as live:
        while followed.running:
            time.sleep(interval)
            live.update(tables(), refresh=True)


def as_table(headings: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> Any:
    """Return a table for terminals, by rich. No text of users is taken for markup."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=title or None, box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
    for k, heading in enumerate(headings):
        shown.add_column(heading, no_wrap=k < 2)  # names stay whole, and others' lines break
    for cells in rows:
        shown.add_row(*(Text(printable(cell)) for cell in cells))
    return shown


def alerts(
    handler: Callable[[dict[str, Any]], object] | None = None, client: Client | None = None
) -> None:
    """Call a function for every alert from now on, such as one that prints or posts it.

    There are few: each kind comes at most once per job, and one for each change of a job, of the
    policy or of the plugin (``audit``). Where the scheduler does not run the plugin, there are
    none.

    Parameters
    ----------
    handler : callable
        Called with a dict: ``event`` (``reached``, ``late``, ``converged``, ``stalled``,
        ``diverged``, ``silent``, ``blocked``, ``budget``, ``done``, ``stopped``, ``failed``,
        ``lost``, ``audit`` or ``fell back``), ``job``, ``owner``, ``message``; at the end of a job
        also ``iteration``, ``loss`` and ``seconds``. By default all but the ``audit`` is printed,
        in a notebook below the cell of this call. It replaces the handler of an earlier call.
    client : distributed.Client, optional
        Defaults to the current client.

    Raises
    ------
    InvalidSetting
        The handler cannot be called.

    Examples
    --------
    >>> alerts(lambda alert: requests.post(URL, json=alert))  # doctest: +SKIP
    """
    if handler is not None and not callable(handler):
        raise InvalidSetting(
            f"alerts() takes a function that is called with an alert, a dict, not {shown(handler)}"
        )
    client = current_client(client)
    if handler is None:
        handler = _printer()
    client._stream_handlers[ALERT] = lambda alert: handler(alert)
    if client.asynchronous:
        client.loop.add_callback(_follow, client)  # type: ignore[union-attr]  # never None
    else:
        client.sync(_follow, client)


async def _follow(client: Client) -> None:
    """Have the scheduler tell a client all alerts, on its stream, where nobody else tells any."""
    try:
        await asyncio.wait_for(request(client, "slaq_follow"), timeout=10)
    except NoPlugin as error:
        go_without(client, error)
    except asyncio.TimeoutError:  # Dask answers no request that it does not know
        logger.warning("no alerts will come: the scheduler has an older dask_slaq, or no time")


def _printer() -> Callable[[dict[str, Any]], object]:
    """Return a function that prints alerts, but not what is changed on purpose."""
    if not in_notebook():
        return lambda alert: alert["event"] == "audit" or print(_line(alert))
    from IPython.display import display

    # Printed text would go to whichever cell runs when the alert comes, or nowhere.
    lines: list[str] = []
    shown = display({"text/plain": "alerts will appear here"}, raw=True, display_id=True)

    def show(alert: dict[str, Any]) -> None:
        if alert["event"] == "audit":
            return
        lines[:] = [*lines, _line(alert)][-50:]
        shown.update({"text/plain": "\n".join(lines)}, raw=True)

    return show


def _line(alert: dict[str, Any]) -> str:
    return printable(f"{alert['event']}: {alert['message']}")
