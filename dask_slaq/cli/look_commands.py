"""Commands that look at a running scheduler: ``jobs``, ``owners``, ``limits``, ``explain``, ...

Those that change owners and limits are in `dask_slaq.cli.change_commands`.
"""

from __future__ import annotations

import shutil
import sys
from typing import Any

import click

from dask_slaq.cli.main import LazyGroup
from dask_slaq.cli.options import Where, ask, call, json_flag, json_option, scheduler_options
from dask_slaq.cli.runs import file_to_read
from dask_slaq.cli.text import aligned, printable, tell, to_json


@click.command()
@click.option("--ended", is_flag=True, help="List the jobs that ended within a day.")
@scheduler_options
@json_flag
def jobs(where: Where, ended: bool, as_json: bool) -> None:
    """List the jobs of a running scheduler, and why each has what it has.

    \b
    Example:
        dask slaq jobs --scheduler tcp://10.0.0.1:8786

    "running" counts the tasks that hold a thread, "granted" the threads that the policy gives the
    job in this epoch, and "done" how much of its predicted loss reduction it has made.
    """
    from dask_slaq.cli.status_tables import ended_table, jobs_table

    if ended:
        over, since = ask(where, _ended)
        click.echo(to_json(over) if as_json else ended_table(over, since))
        return
    found = call(where, "status")
    click.echo(to_json(found) if as_json else jobs_table(found, width=_width()))


@click.group(
    cls=LazyGroup, members={"set": "change_commands:set_owner"}, invoke_without_command=True
)
@scheduler_options
@json_flag
@click.pass_context
def owners(context: click.Context, where: Where, as_json: bool) -> None:
    """List the owners of jobs: what each deserves, got and has used; or change their settings.

    \b
    Example:
        dask slaq owners --scheduler-file scheduler.json

    Names that end with a slash are teams, with the sums over their members. "deserved", "got",
    "lent", "borrowed" and "idle" are threads, known if slaq.owners is
    configured on the scheduler. Usage includes jobs that have ended.
    """
    from dask_slaq.cli.status_tables import owners_table

    if context.invoked_subcommand is not None:
        return
    status = call(where, "status")
    found = {**status.get("owners", {}), **status.get("teams", {})}
    click.echo(to_json(found) if as_json else owners_table(found))


@click.group(
    cls=LazyGroup, members={"set": "change_commands:set_limit"}, invoke_without_command=True
)
@scheduler_options
@json_flag
@click.pass_context
def limits(context: click.Context, where: Where, as_json: bool) -> None:
    """List the limits of labels (slaq.limits), with the tasks that run and wait; or change them.

    \b
    Example:
        dask slaq limits --scheduler-file scheduler.json

    Limits of owners (slaq.owners) are in dask slaq owners, those of resources with --json.
    """
    from dask_slaq.cli.status_tables import limits_table

    if context.invoked_subcommand is not None:
        return
    found = call(where, "status").get("limits", {})
    click.echo(to_json(found) if as_json else limits_table(found))


@click.command()
@scheduler_options
@json_flag
def workers(where: Where, as_json: bool) -> None:
    """List the workers of a running scheduler, and how fast each is.

    \b
    Example:
        dask slaq workers --scheduler tcp://10.0.0.1:8786

    "factor" is how much longer like tasks take there than on a median worker, as scheduling uses
    it: 1 unless that is sure. "estimate" is the best guess, with the band that has it in 80 %.
    """
    from dask_slaq.cli.status_tables import workers_table

    found = call(where, "workers")
    click.echo(to_json(found) if as_json else workers_table(found))


@click.command()
@click.argument("job")
@scheduler_options
@json_flag
def explain(job: str, where: Where, as_json: bool) -> None:
    """Explain why JOB has the threads that it has, or what it waits for.

    \b
    Example:
        dask slaq explain logreg-C0.1
    """
    found = call(where, "explain", job)
    text = "\n".join(printable(line) for line in found["text"].splitlines())
    click.echo(to_json(found) if as_json else text)


@click.command()
@click.argument("file", required=False)
@scheduler_options
@json_flag
def audit(file: str | None, where: Where, as_json: bool) -> None:
    """List who changed jobs, the policy or the plugin, from where, and what was refused.

    \b
    Examples:
        dask slaq audit --scheduler tcp://10.0.0.1:8786
        dask slaq audit runs.db

    A running scheduler is asked, or FILE is read (the setting slaq.run-history of the scheduler).
    These are the last changes, oldest first; where the scheduler has such a file, also those of
    schedulers before. Each is also a line in the scheduler's log, and an alert.
    """
    from dask_slaq.run_history import read_audit

    path = file_to_read(file, where)
    found = ask(where, _audit) if path is None else read_audit(path)
    lines = (printable(f"{event['when']}  {event['message']}") for event in found)
    click.echo(to_json(found) if as_json else "\n".join(lines) or "nothing was changed")


async def _audit(client: Any) -> list[dict[str, Any]]:
    """Return the audit of a scheduler, also of one from which the plugin was unregistered."""
    from dask_slaq.client import check_started, request
    from dask_slaq.core.errors import NoPlugin
    from dask_slaq.core.settings import AUDIT_TOPIC

    try:
        found: list[dict[str, Any]] = list(await request(client, "slaq_audit"))
    except NoPlugin:
        await check_started(client)
        if not await client.scheduler.get_metadata(keys=[AUDIT_TOPIC], default=None):
            raise
        found = list(await client.scheduler.slaq_audit())
    return found


async def _ended(client: Any) -> tuple[list[dict[str, Any]], float]:
    """Return the jobs that ended, and the Unix time at which the scheduler started."""
    from dask_slaq.client import ended

    over: Any = ended(client)
    return await over, (await client.scheduler.identity())["started"]


def _width() -> int | None:
    """Return the width of the terminal, or None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@click.command()
@click.argument(
    "log", metavar="[LOG]", required=False, type=click.Path(exists=True, dir_okay=False)
)
@click.option("--target", type=float, metavar="LOSS", help="Of a LOG: the loss to reach.")
@click.option(
    "--workers",
    is_flag=False,
    flag_value=0,
    default=0,
    type=click.IntRange(0),
    metavar="[N]",
    help="Number of workers to compare with those that are there; that which pays by default.",
)
@scheduler_options
@json_option
def advise(
    where: Where, log: str | None, target: float | None, workers: int, json_file: str | None
) -> None:
    """Say how many workers pay for the jobs of a running scheduler, or what N would change.

    They pay by the value of the jobs' time and the price in the setting slaq.scaling, without it in
    worker-hours. What to persist is told by dask_slaq.lab.persisting.

    With a LOG, the newest file recorded with the setting slaq.log, and --target: which solver, on
    how many threads, reaches the loss soonest. Jobs are of one solver if their names differ only by
    a number at the end.
    """
    if (log is None) != (target is None):
        raise click.UsageError("give both a LOG and --target, or neither")
    if log is not None and target is not None:
        _advise_on_solvers(log, target, json_file)
        return
    found = call(where, "whatif", workers or None)
    tell(found, found["text"], json_file)


def _advise_on_solvers(log: str, target: float, json_file: str | None) -> None:
    from dask_slaq.lab.simulation import advice

    found = advice.advise(log, target)
    cells = [["solver", "threads", "iterations", "s/iteration", "seconds"]]
    for option in found["options"]:
        threads = f"{option['threads']}{'*' if option['extrapolated'] else ''}"
        count = f"{'~' if option['predicted'] else ''}{option['iterations']:.0f}"
        each, seconds = f"{option['iteration_s']:.3g}", f"{option['seconds']:.1f}"
        cells.append([printable(option["solver"]), threads, count, each, seconds])
    never = [
        f"{printable(solver)} is not predicted to reach {target:g}: its lowest loss is {loss:.4g}"
        for solver, loss in found["out_of_reach"].items()
    ]
    legend = "~: predicted, as no run reached the target. *: so many threads were not recorded."
    tell(found, "\n".join([*aligned(cells), "", legend, *never, *found["notes"]]), json_file)
