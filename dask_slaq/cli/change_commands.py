"""Commands that change a running scheduler's jobs, owners, limits and policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from dask_slaq.cli.options import Where, call, json_flag, scheduler_options
from dask_slaq.cli.text import aligned, local_time, printable, to_json
from dask_slaq.core.jobs.settings import CHANGEABLE, JOB_SETTINGS
from dask_slaq.core.text import in_threads

_WHO = "Only its owner and operators (slaq.operators) may do this; everyone if there are none."


def _command(
    name: str, text: str, example: str = ""
) -> Callable[[Callable[..., Any]], click.Command]:
    """Return a decorator for a command that changes a job; its example is of ``logreg-C0.1``."""
    example = f"dask slaq {name} logreg-C0.1{example}"
    return click.command(name, help=f"{text}\n\n\b\nExample:\n    {example}\n\n{_WHO}")


def _options_of_jobs(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting that can be changed while a job runs."""
    for name in reversed(CHANGEABLE):
        each = JOB_SETTINGS[name]
        flag, text = f"--{name.replace('_', '-')}", f"{each.about[:1].upper()}{each.about[1:]}."
        command = click.option(flag, type=float, metavar=each.unit.upper() or None, help=text)(
            command
        )
    return command


@_command(
    "change",
    "Change settings of the running job JOB. Those that are not given stay as they are.",
    " --weight 2 --max-share 8",
)
@click.argument("job")
@_options_of_jobs
@scheduler_options
def change(job: str, where: Where, **settings: float | None) -> None:
    flags = (f"--{name.replace('_', '-')}" for name in CHANGEABLE)
    given = _given(settings, ", ".join(flags))
    call(where, "change", job, **given)
    values = ", ".join(f"{name} {value:g}" for name, value in given.items())
    _say(f"{job}: {values}")


def _steering(name: str, text: str, done: str) -> click.Command:
    """Return a command of one argument, the job, which tells what it has done."""

    @_command(name, text)
    @click.argument("job")
    @scheduler_options
    def steer(job: str, where: Where) -> None:
        call(where, name, job)
        _say(f"{job} {done}")

    return steer


_PAUSED = "no task of it starts until it is unpaused, and those that run go on"
pause = _steering("pause", f"Pause the running job JOB: {_PAUSED}.", f"is paused: {_PAUSED}")
unpause = _steering("unpause", "Let the paused job JOB go on.", "goes on")
stop = _steering(
    "stop",
    "Stop the running job JOB: its next report of a loss raises StopTraining in its training "
    "loop. A fit of a supported library ends with the model that it has.",
    "ends at its next report",
)


@click.command()
@click.argument("name", required=False)
@scheduler_options
def policy(name: str | None, where: Where) -> None:
    """Print the policy of a running scheduler, or change it to NAME.

    \b
    Examples:
        dask slaq policy
        dask slaq policy fair

    A change takes effect at once, and lasts until the next one or the scheduler's end. Only
    operators (slaq.operators) may do it; everyone if there are none.
    """
    if name is None:
        click.echo(call(where, "status")["policy"])
        return
    call(where, "set_policy", name)
    _say(f"the policy is {name}")


def _amounts(context: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Return amounts such as ``GPU=4,TPU=1`` by name."""
    if text is None:
        return None
    try:
        given = [] if text == "none" else text.split(",")
        return {name: float(amount) for name, _, amount in (one.rpartition("=") for one in given)}
    except ValueError:
        raise click.BadParameter(f"amounts are like GPU=4, or none, not {text!r}") from None


@click.command("set")
@click.argument("owner")
@click.option("--weight", type=float, help="Share relative to other owners, above 0.")
@click.option("--max-threads", type=float, help="Most threads; inf for no limit.")
@click.option(
    "--max-jobs", type=float, help="Most jobs and searches at once, others wait; inf for no limit."
)
@click.option(
    "--max-resources",
    metavar="GPU=4,...",
    callback=_amounts,
    help="Most of each resource in use at once, in place of all earlier ones; none for no limit.",
)
@click.option("--max-slowdown", type=float, help="Factor of their fair time for later jobs.")
@click.option("--value-per-hour", type=float, help="What an hour of its jobs' time is worth.")
@click.option(
    "--core-hours", type=float, help="Budget of the period, in core-hours; inf for no budget."
)
@click.option("--period", metavar="DAYS", help="Period of the budget, such as 30d.")
@click.option(
    "--over",
    type=click.Choice(["wait", "spare"]),
    help="Above the budget: new jobs wait, or all run on what nobody else wants.",
)
@scheduler_options
def set_owner(owner: str, where: Where, **settings: Any) -> None:
    """Change settings of OWNER: ann@desk, ann for all of her machines, or default.

    \b
    Example:
        dask slaq owners set ann --max-threads 8 --max-jobs 4
        dask slaq owners set ann --core-hours 3000 --period 30d

    Those that are not given stay. A change takes effect at once, and lasts until the next one or
    the scheduler's end. Only operators (slaq.operators) may do it; everyone if there are none.
    """
    given = _given(settings, "--weight, --max-threads, --max-jobs, --core-hours")
    call(where, "set_owner", owner, **given)
    shown = {n.replace("_", "-"): f"{v:g}" if isinstance(v, float) else v for n, v in given.items()}
    if (most := given.get("max_resources")) is not None:
        shown["max-resources"] = ",".join(f"{n}={v:g}" for n, v in most.items()) or "none"
    values = ", ".join(f"{name} {value}" for name, value in shown.items())
    _say(f"{owner}: {values}, until the scheduler ends")


@click.command("set")
@click.argument("label")
@click.argument("most")
@scheduler_options
def set_limit(label: str, most: str, where: Where) -> None:
    """Let MOST tasks of LABEL run at once; none for no limit.

    \b
    Example:
        dask slaq limits set database 4

    A change takes effect at once, and lasts until the next one or the scheduler's end. Only
    operators (slaq.operators) may do it; everyone if there are none.
    """
    if most != "none" and not most.isdecimal():
        raise click.UsageError(f"MOST must be a number of tasks, or none, not {most!r}")
    count = None if most == "none" else int(most)
    call(where, "set_limit", label, count)
    limit = "no limit" if count is None else f"{most} at once"
    _say(f"{label}: {limit}, until the scheduler ends")


def _given(settings: Mapping[str, Any], options: str) -> dict[str, Any]:
    given = {name: value for name, value in settings.items() if value is not None}
    if not given:
        raise click.UsageError(f"nothing to change: give {options}, ...")
    return given


def _say(text: str) -> None:
    click.echo(printable(text))


@click.command()
@click.argument("owner", required=False)
@click.argument("threads", required=False, type=float)
@click.option("--from", "begin", metavar="TIME", help="When it begins; now by default.")
@click.option("--to", "end", metavar="TIME", help="When it ends.")
@click.option("--remove", type=int, metavar="NUMBER", help="Remove the reservation of this number.")
@scheduler_options
@json_flag
def reserve(
    owner: str | None,
    threads: float | None,
    begin: str | None,
    end: str | None,
    remove: int | None,
    where: Where,
    as_json: bool,
) -> None:
    """Reserve THREADS for OWNER in a span of time, or list the reservations.

    \b
    Examples:
        dask slaq reserve ann 16 --from 18:00 --to 22:00
        dask slaq reserve
        dask slaq reserve --remove 1

    TIME is a time of this machine, such as 18:00 (the next one) or "2026-11-30 18:00". In that time
    OWNER deserves at least these threads; what it does not use is lent. Only operators
    (slaq.operators) may change reservations; everyone if there are none.
    """
    if remove is not None and (owner or begin or end):
        raise click.UsageError("give --remove or an owner, not both")
    if remove is not None:
        call(where, "unreserve", remove)
        click.echo(f"reservation {remove} is removed")
    elif owner is None:
        found = call(where, "reservations")
        click.echo(to_json(found) if as_json else _table(found))
    elif threads is None or end is None:
        raise click.UsageError("give OWNER, THREADS and --to")
    else:
        made = call(where, "reserve", owner, threads, begin, end)
        span = f"from {local_time(made['begin'])} to {local_time(made['end'])}"
        what = in_threads(threads)
        click.echo(printable(f"reservation {made['number']}: {owner} {what} {span}"))
        if made["note"]:
            click.echo(made["note"])


def _table(found: Sequence[dict[str, Any]]) -> str:
    if not found:
        return "nothing is reserved"
    cells = [["number", "owner", "threads", "from", "to", ""]]
    for one in found:
        times = [local_time(one["begin"]), local_time(one["end"]), "now" * one["now"]]
        cells.append([str(one["number"]), printable(one["owner"]), f"{one['threads']:g}", *times])
    return "\n".join(aligned(cells, left=(1,)))
