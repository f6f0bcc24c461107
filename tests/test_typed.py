"""What a user's program gets is typed: no Any where the package knows more."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dask_slaq as slaq
from dask_slaq import client

ROOT = Path(__file__).parents[1]
PROGRAM = """
import dask_slaq as slaq

def train(params: dict[str, float], steps: int = 40) -> float:
    for _ in slaq.steps(steps):
        slaq.report(params["lr"])
    return params["lr"]

with slaq.search("grid", steps=40) as search:
    reveal_type(search)  # Search
    reveal_type(search.map(train, [{"lr": 0.1}]))  # list[Future[float]]
    reveal_type(search.set(prune=True))  # None
    reveal_type(search.train_on(best=3, steps=80))  # list[Future[Any]]
reveal_type(search.best_params)  # dict[str, Any]
reveal_type(search.best().loss)  # float
reveal_type(search.best().future)  # Future[Any] | Future[Any] | None
reveal_type(search.results())  # DataFrame
reveal_type(search.curves())  # DataArray
for trial in search.trials():
    reveal_type(trial["loss"])  # float
    reveal_type(trial["state"])  # str
    reveal_type(trial["params"])  # dict[str, Any]
    reveal_type(trial["curve"])  # list[tuple[int, float]]
with slaq.job("mine") as job:
    reveal_type(job)  # Job
    reveal_type(job.report(0.5))  # None
    reveal_type(job.iteration)  # int
    reveal_type(job.bind(train))  # def (params: dict[str, float], steps: int =) -> float
future = slaq.submit(train, {"lr": 0.1}, name="a")
reveal_type(future)  # TrainingFuture[float]
reveal_type(future.job)  # Job
reveal_type(future.result())  # float
reveal_type(slaq.status())  # Status
reveal_type(slaq.reserve("ann", 4, None, "18:00"))  # dict[str, Any]
reveal_type(slaq.reservations())  # list[dict[str, Any]]
reveal_type(slaq.history())  # Dataset
reveal_type(slaq.trial(train))  # def (params: dict[str, float], steps: int =) -> float | Pruned
reveal_type(slaq.waited())  # float
reveal_type(slaq.usage("7d"))  # dict[str, Any]
reveal_type(slaq.explain("mine"))  # dict[str, Any]
reveal_type(slaq.simulate(["fair"]))  # dict[str, Any]
with slaq.instrument():
    reveal_type(slaq.instrument())  # _GeneratorContextManager[None, None, None]
slaq.change("mine", weight=2.0)
slaq.SlaqPlugin(policy="fair")
slaq.unknown  # type: ignore[attr-defined]
"""
#: Pandas has no types of its own: whoever checks types has those of another package.
PANDAS = "from typing import Any\nclass DataFrame: ...\ndef __getattr__(name: str) -> Any: ...\n"


def short(text: str) -> str:
    """A type without the modules of its names."""
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)


def test_checkers_are_told_all_names():
    assert set(client.__all__) == set(slaq._NAMES["client"])


@pytest.mark.slow
def test_a_typed_program(tmp_path):
    (tmp_path / "pandas").mkdir()
    (tmp_path / "pandas" / "__init__.pyi").write_text(PANDAS)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    cache = ROOT / ".mypy_cache" / "of_programs"
    options = ["--strict", "--follow-imports=silent", "--config-file=", f"--cache-dir={cache}"]
    found = subprocess.run(
        [sys.executable, "-m", "mypy", *options, str(program)],
        env={**os.environ, "MYPYPATH": f"{ROOT}{os.pathsep}{tmp_path}"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert "error:" not in found.stdout, found.stdout + found.stderr
    revealed = [short(each) for each in re.findall(r'Revealed type is "(.*)"', found.stdout)]
    wanted = re.findall(r"reveal_type\(.*\)  # (.*)", PROGRAM)
    assert revealed == wanted
    assert "Any" not in revealed
