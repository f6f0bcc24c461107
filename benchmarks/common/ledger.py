"""Ledger of seeds: a line of JSON per scenario, so that a run goes on where it was."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

ledger_option = click.option(
    "--ledger",
    metavar="FILE",
    help="Add a line of JSON per seed to this file as it is done, and skip the seeds in it.",
)


class Ledger:
    """Seeds that are done, with what was found, in a file of lines; without one, in memory."""

    def __init__(self, path: str | None) -> None:
        self._path = None if path is None else Path(path)
        self.rows: dict[int, dict[str, Any]] = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text().splitlines():
                try:
                    row = json.loads(line)
                    self.rows[int(row["seed"])] = row
                except (ValueError, KeyError, TypeError):  # a line that was cut off
                    continue

    def left(self, seeds: Iterable[int]) -> list[int]:
        """Return the seeds that are not done."""
        return [seed for seed in seeds if seed not in self.rows]

    def follow(
        self, found: Iterable[tuple[Any, Any]], about: Callable[[Any], dict[str, Any]]
    ) -> Iterator[tuple[int, Any]]:
        """Yield what `virtual.run_all` finds, by seed, and write what is known `about` it."""
        for (seed, *_), one in found:
            row = {"seed": seed, **about(one)}
            self.rows[seed] = row
            if self._path is not None:
                with self._path.open("a") as file:
                    file.write(json.dumps(row) + "\n")
            yield seed, one
