"""The application behind ``dask slaq top``. Only that command imports this module."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

import click
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static

from dask_slaq import client as api
from dask_slaq.cli.connection import Where, close, connect, explained
from dask_slaq.cli.status_tables import COLUMNS, owners_table, summary
from dask_slaq.cli.text import aligned, printable
from dask_slaq.cli.top.table import JobsTable
from dask_slaq.client import as_cells, request
from dask_slaq.core.job_columns import Row, rows

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Top"]

_STEERING = ("pause", "stop")
#: Number of models of a search in the pane.
MOST_MODELS = 12
_OF_JOBS = (*_STEERING, "explain", "filter", "sort", "reverse")


class Question(ModalScreen[bool]):
    """Dialog that is dismissed with whether the answer was yes."""

    CSS = """
    Question { align: center middle; }
    Question > Static { width: auto; max-width: 80%; padding: 1 2; border: thick $error;
                        background: $surface; }
    """
    BINDINGS: ClassVar = [
        Binding("y", "answer(True)", "Yes"),
        Binding("n,escape,q", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    def compose(self) -> ComposeResult:
        """Show the question."""
        yield Static(f"{self.text}  [y/n]", markup=False)

    def action_answer(self, yes: bool) -> None:
        """Close the dialog with an answer."""
        self.dismiss(yes)


class Top(App[None]):
    """Live table of the jobs of one scheduler, asked every `interval` seconds."""

    CSS = """
    #summary { height: auto; padding: 0 1; background: $panel; text-style: bold; }
    #message { height: auto; padding: 0 1; color: $warning; }
    #filter { height: 1; border: none; padding: 0 1; }
    #jobs { height: 1fr; }
    #detail { height: auto; padding: 0 1; background: $panel; }
    #pane { height: auto; max-height: 60%; border-top: solid $primary; padding: 0 1; }
    #owners { height: 1fr; padding: 0 1; }
    """
    TITLE = "dask slaq top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar = [
        Binding("e,enter", "explain", "Explain", priority=True),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "clear_filter", "All jobs"),
        Binding("p", "pause", "Pause/resume"),
        Binding("s", "stop", "Stop"),
        Binding("o", "owners", "Owners"),
        Binding("less_than_sign", "sort(-1)", "Sort by", key_display="< >"),
        Binding("greater_than_sign", "sort(1)", show=False),
        Binding("r", "reverse", "Reverse"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, where: Where, *, interval: float = 1.0, read_only: bool = False) -> None:
        super().__init__()
        self.where, self.interval, self.read_only = where, interval, read_only
        self.address = where.find()
        self.status: dict[str, Any] | None = None
        self.sorted_by, self.upwards = 0, True
        self._client: Client | None = None

    def compose(self) -> ComposeResult:
        """Create the widgets, from top to bottom."""
        yield Static(f"connecting to {printable(self.address)}", id="summary", markup=False)
        yield Static("", id="message", markup=False)
        yield Input(placeholder="part of a job's or owner's name", id="filter")
        yield JobsTable(id="jobs")
        yield Static("", id="detail", markup=False)
        with VerticalScroll(id="owners"):
            yield Static("", id="owners-text", markup=False)
        with VerticalScroll(id="pane"):
            yield Static("", id="explanation", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        """Begin to look at the scheduler."""
        for hidden in ("#message", "#filter", "#owners", "#pane"):
            self.query_one(hidden).display = False
        self.query_one("#jobs").focus()
        self.run_worker(self._look(), name="look", exit_on_error=False)

    async def on_unmount(self) -> None:
        """Leave the scheduler."""
        await self._disconnect()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Switch keys off where they do not apply."""
        if isinstance(self.screen, Question):  # whose keys these are
            return False
        if action == "clear_filter":
            return bool(self.query_one("#filter").display)
        if self.query_one("#filter").has_focus:  # its text may contain any of the keys
            return False
        if action in _OF_JOBS and not self.query_one("#jobs").display:
            return False
        return not (self.read_only and action in _STEERING)

    # Looking

    async def _look(self) -> None:
        while True:
            await self.refresh_status()
            await asyncio.sleep(self.interval)

    async def refresh_status(self) -> None:
        """Ask for the status once, and show it. What goes wrong is shown, and asked again later."""
        try:
            self.status = await self._ask(lambda client: api.status(client))  # type: ignore
        except click.ClickException as error:
            self._say(error.format_message(), lost=True)
            return
        with suppress(NoMatches):  # the application ends
            if self.query_one("#message").has_class("lost"):
                self._say("")
            self._show()
            await self._show_explanation()

    async def _ask(self, question: Callable[[Client], Awaitable[Any]]) -> Any:
        """Return the answer of the scheduler. A lost connection is made anew the next time."""
        timeout = self.where.timeout
        try:
            with explained(self.address, timeout):
                if self._client is None:
                    self._client = await connect(self.address, timeout)
                return await asyncio.wait_for(question(self._client), timeout)
        except click.ClickException:
            if self._client is not None and self._client.status != "running":
                await self._disconnect()
            raise

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await close(client)

    def _say(self, text: str, lost: bool = False) -> None:
        """Show a message until the next; one of a lost connection until the next answer."""
        with suppress(NoMatches):  # the application ends
            message = self.query_one("#message", Static)
            message.update(printable(text))
            message.display = bool(text)
            message.set_class(lost, "lost")

    # Showing

    def _show(self) -> None:
        status = self.status
        if status is None:
            return
        self.query_one("#summary", Static).update(summary(status))
        owners = {**status.get("owners", {}), **status.get("teams", {})}
        self.query_one("#owners-text", Static).update(owners_table(owners))
        table = self.query_one("#jobs", JobsTable)
        text = self.query_one("#filter", Input).value.casefold()
        jobs = [
            row
            for row in rows(status["jobs"])
            if text in row["job"].casefold() or text in row["owner"].casefold()
        ]
        table.show(self._ordered(jobs), self.sorted_by, self.upwards)
        self._show_detail()

    def _show_detail(self) -> None:
        """Show what the table may cut: the names and the reason of the chosen job."""
        jobs = {} if self.status is None else self.status["jobs"]
        job = jobs.get(self.job)
        if job is not None:
            owner = f" ({job['owner']})" if job["owner"] else ""
            text = f"{self.job}{owner}: {job['reason']}"
        else:
            text = "no job matches the filter" if jobs else "no job is running"
        detail = self.query_one("#detail", Static)
        detail.update(printable(text))
        # The explanation in the pane begins with the same.
        detail.display = self.query_one("#jobs").display and not self.query_one("#pane").display

    def _ordered(self, jobs: list[Row]) -> list[Row]:
        """Return the jobs in order: unowned tasks last, ties by name."""
        jobs = sorted(jobs, key=lambda row: row["job"])
        jobs.sort(key=COLUMNS[self.sorted_by].rank, reverse=not self.upwards)
        return sorted(jobs, key=lambda row: not row["reports"])

    @property
    def job(self) -> str | None:
        """Name of the chosen job."""
        return self.query_one("#jobs", JobsTable).job

    async def _show_explanation(self) -> None:
        pane = self.query_one("#pane")
        if not pane.display or (job := self.job) is None:
            return
        try:
            found = await self._ask(lambda client: api.explain(job, client=client))  # type: ignore
            lines = [printable(line) for line in found["text"].splitlines()]
            if job in (self.status or {}).get("searches", ()):
                lines[1:1] = [await self._models(job)]
            text = "\n".join(lines)
        except click.ClickException as error:
            text = error.format_message()
        if self.job == job:
            self.query_one("#explanation", Static).update(text)

    async def _models(self, search: str) -> str:
        """Return a table of the best models of a search."""
        found = await self._ask(lambda client: request(client, "slaq_models", search=search))
        head, body = as_cells(found["rows"], found["maximize"], MOST_MODELS)
        return "\n".join(map(printable, aligned([head, *body], left=range(3, len(head)))))

    # Keys

    def action_sort(self, step: int) -> None:
        """Sort by the next column to the left or right."""
        self._sort_by((self.sorted_by + step) % len(COLUMNS))

    def _sort_by(self, column: int) -> None:
        self.sorted_by = column
        # Names from the first; of everything that is counted the most first.
        self.upwards = COLUMNS[column].left
        self._show()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.upwards = not self.upwards
        self._show()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        """Sort by the column of the heading; reverse the order if it is sorted by it."""
        if event.column_index == self.sorted_by:
            self.action_reverse()
        else:
            self._sort_by(event.column_index)

    async def on_data_table_row_highlighted(self) -> None:
        """Explain the job that is chosen now."""
        with suppress(NoMatches):  # the application ends
            self._show_detail()
            await self._show_explanation()

    def action_filter(self) -> None:
        """Ask for the text of the filter."""
        entry = self.query_one("#filter")
        entry.display = True
        entry.focus()

    def action_clear_filter(self) -> None:
        """Show all jobs again."""
        entry = self.query_one("#filter", Input)
        entry.value = ""
        entry.display = False
        self.query_one("#jobs").focus()
        self._show()

    def on_input_changed(self) -> None:
        """Show the jobs that match the text so far."""
        with suppress(NoMatches):  # the application ends
            self._show()

    def on_input_submitted(self) -> None:
        """Go back to the table; of an empty text nothing is left."""
        if self.query_one("#filter", Input).value:
            self.query_one("#jobs").focus()
        else:
            self.action_clear_filter()

    async def action_explain(self) -> None:
        """Open or close the pane that explains the chosen job."""
        pane = self.query_one("#pane")
        pane.display = not pane.display
        await self.on_data_table_row_highlighted()

    def action_owners(self) -> None:
        """Show the owners instead of the jobs, or the jobs again."""
        table, owners = self.query_one("#jobs"), self.query_one("#owners")
        table.display, owners.display = not table.display, not owners.display
        self.query_one("#pane").display = False  # it is about a job
        self._show_detail()
        (table if table.display else owners).focus()
        self.refresh_bindings()

    async def action_pause(self) -> None:
        """Pause the chosen job, or resume it."""
        job = self.job
        if job is None or self.status is None:
            return
        paused = self.status["jobs"][job].get("state") == "paused"
        act = api.resume if paused else api.pause
        done = "goes on" if paused else "is paused"
        await self._steer(job, lambda client: act(job, client=client), done)

    def action_stop(self) -> None:
        """Stop the chosen job, if the user means it."""
        job = self.job
        if job is None or self.status is None:
            return
        owner = self.status["jobs"][job]["owner"]
        whose = f"{job} of {owner}" if owner else job

        async def answered(yes: bool | None) -> None:
            if yes:
                done = "ends at its next report"
                await self._steer(job, lambda client: api.stop(job, client=client), done)

        self.push_screen(Question(f"Stop {printable(whose)} at its next report?"), answered)

    async def _steer(self, job: str, action: Callable[[Client], Awaitable[Any]], done: str) -> None:
        try:
            await self._ask(action)
            self._say(f"{job} {done}")
        except click.ClickException as error:
            self._say(error.format_message())
        await self.refresh_status()
