"""Preload module for ``dask scheduler --preload dask_slaq``, with settings as options.

As ``distributed.client.preload`` it says to whom the tasks of a client belong that opens no job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import click
from distributed import Client, Scheduler, Worker

from dask_slaq.config import ROWS, PluginSettings, convert, is_strict, meanings, settings
from dask_slaq.core.errors import InvalidSetting, SlaqError
from dask_slaq.core.text import printable

logger = logging.getLogger(__name__)

#: What becomes of the tasks on a scheduler without the plugin.
LEFT = "every task is left to plain Dask, without limits"


class CheckedCommand(click.Command):
    """Command that checks all options when the command line is parsed.

    Dask only logs what a preload raises later, with a traceback.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        try:
            for name, value in ctx.params.items():
                if value is not None:
                    convert(name, value)
            if ctx.params["log"]:
                chosen = _settings_or_none(ctx.params)
                if chosen is not None and chosen.log is not None:
                    from dask_slaq.scheduler.event_log import Journal

                    Journal(chosen.log, chosen.log_size, chosen.log_files).close()
        except SlaqError as error:
            raise click.UsageError(str(error), ctx) from error
        return rest

    def make_context(
        self, info_name: str | None, args: list[str], *parent: Any, **extra: Any
    ) -> click.Context:
        """Return the context of `dask_setup`, which is given what is wrong with its options.

        On a command line they were checked before; these come from the Dask configuration.
        """
        try:
            return super().make_context(info_name, list(args), *parent, **extra)
        except click.ClickException as error:
            context = super().make_context(info_name, [], *parent, **extra)
            context.params["wrong"] = error.format_message().rstrip(".")
            return context


def _settings_or_none(given: dict[str, Any]) -> PluginSettings | None:
    """Return the settings; None if the configuration is invalid, which `dask_setup` reports."""
    try:
        return settings(**given)
    except SlaqError:
        return None


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each setting that has one."""
    texts = meanings()
    for name, row in reversed(ROWS.items()):
        kind, key = row["option"], name.replace("_", "-")
        if kind is None:
            continue
        names, more = f"--{key}", {"type": kind}
        if kind is bool:
            names, more = f"--{key}/--no-{key}", {"default": None}
        elif kind is Path:
            more = {"metavar": "FILE"}
        meaning = f"{texts[key][:1].upper()}{texts[key][1:]}."
        command = click.option(names, help=meaning, **more)(command)
    return command


@click.command(cls=CheckedCommand)
@_options
async def dask_setup(scheduler: Scheduler | Worker | Client, **options: Any) -> None:
    """Register SlaqPlugin. Options default to the Dask configuration under slaq:."""
    from distributed import Client, Scheduler

    if isinstance(scheduler, Client):
        from dask_slaq.client import introduce

        await introduce(scheduler)
        return
    if not isinstance(scheduler, Scheduler):
        logger.warning("--preload dask_slaq does nothing on %s", type(scheduler).__name__)
        return
    from dask_slaq.scheduler.plugin import SlaqPlugin
    from dask_slaq.scheduler.registration import forget_failure

    _log_as_distributed()
    try:
        if (wrong := options.pop("wrong", None)) is not None:
            raise InvalidSetting(f"distributed.scheduler.preload-argv: {wrong}")
        plugin = SlaqPlugin(**options)
        await plugin.start(scheduler)
    except Exception as error:
        strict = is_strict(options.get("strict"))
        known = error if isinstance(error, SlaqError) else None
        then = "the scheduler does not start (slaq.strict)" if strict else LEFT
        logger.error(
            "dask_slaq did not start: %s; %s", error, then, exc_info=None if known else error
        )
        if strict and click.get_current_context(silent=True) is not None:
            _exit()
        from dask_slaq.scheduler.registration import NotStarted

        forget_failure(scheduler)
        scheduler.add_plugin(NotStarted(scheduler, error, strict))
        return
    scheduler.add_plugin(plugin, name=plugin.name)
    logger.info("dask_slaq: %s", _in_words(plugin.settings))


def _in_words(settings: PluginSettings) -> str:
    """Return what an operator has set, in one line."""
    names = {
        "owners": ", ".join(settings.owners or ()),
        "limits": ", ".join(f"{label} {most}" for label, most in settings.limits.items()),
        "operators": ", ".join(settings.operators),
        "run history": settings.run_history,
        "log": settings.log,
        "identity": settings.identity,
    }
    parts = [f"policy {settings.policy}", f"epoch {settings.epoch:g} s"]
    parts += [f"{name} {printable(value)}" for name, value in names.items() if value]
    return "; ".join([*parts, *(["locked"] if settings.lock else [])])


def _exit() -> NoReturn:
    """End the command ``dask scheduler``, without a traceback: of an error, Dask would log one."""

    def ignore_exit(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), SystemExit):
            loop.default_exception_handler(context)

    asyncio.get_running_loop().set_exception_handler(ignore_exit)
    raise SystemExit(1)


def _log_as_distributed() -> None:
    """Send log messages of dask_slaq to Dask's handlers, unless logging is set up otherwise."""
    ours, theirs = logging.getLogger("dask_slaq"), logging.getLogger("distributed")
    if not ours.hasHandlers():
        ours.setLevel(theirs.getEffectiveLevel())
        for handler in theirs.handlers:
            ours.addHandler(handler)
