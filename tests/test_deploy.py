"""What `deploy` starts is a cluster with the plugin, and packaging files agree with each other."""

import os
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from distributed import Client
from driving import PATIENCE
from scheduler_process import free_port

import dask_slaq as slaq

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"


def read(path: Path) -> dict:
    return yaml.safe_load(path.read_text())


def pyproject() -> dict:
    return pytest.importorskip("tomllib").loads((ROOT / "pyproject.toml").read_text())


def local(command: list[str], replaced: dict[str, str]) -> list[str]:
    """The command as it runs outside of a container."""
    for old, new in replaced.items():
        command = [part.replace(old, new) for part in command]
    assert command[0] in ("dask", "python")
    return [sys.executable, *(["-m", "dask"] if command[0] == "dask" else []), *command[1:]]


def at(scheduler: list[str], port: int, dashboard: int) -> list[str]:
    """A scheduler's command with free ports. What follows --preload belongs to the plugin."""
    where = ["--host", "127.0.0.1", "--port", str(port), "--dashboard-address", f":{dashboard}"]
    return [*scheduler[:2], *where, *scheduler[2:]]


def runs_with_plugin(address: str) -> dict:
    with Client(address, timeout=PATIENCE) as client:
        with slaq.job("one", client=client) as job:
            job.report(client.submit(pow, 2, -1).result())
        return slaq.status(client)


@pytest.mark.slow
def test_compose_starts_a_cluster(tmp_path):
    services = read(DEPLOY / "docker" / "compose.yaml")["services"]
    port, dashboard = free_port(), free_port()
    replaced = {
        "tcp://scheduler:8786": f"tcp://127.0.0.1:{port}",
        "localhost:8787": f"127.0.0.1:{dashboard}",
        "/home/dask/memory": str(tmp_path),
    }
    scheduler, worker = services["scheduler"], services["worker"]
    commands = [at(scheduler["command"], port, dashboard), worker["command"]]
    environment = {**os.environ, **scheduler["environment"]}
    with ExitStack() as stack:
        for command in commands:
            process = subprocess.Popen(local(command, replaced), env=environment, cwd=tmp_path)
            stack.callback(process.wait, PATIENCE)
            stack.callback(process.terminate)
        assert runs_with_plugin(f"tcp://127.0.0.1:{port}")["failed"] is None
        test = scheduler["healthcheck"]["test"]
        assert test[0] == "CMD"
        subprocess.run(local(test[1:], replaced), check=True, timeout=PATIENCE)
    assert (tmp_path / "runs.db").exists()


@pytest.mark.slow
def test_values_of_the_chart_start_a_scheduler_with_the_plugin(tmp_path):
    values = read(DEPLOY / "helm" / "values.yaml")
    port = free_port()
    settings = {each["name"]: each["value"] for each in values["scheduler"]["env"]}
    packages = {part: values[part]["env"][0] for part in ("scheduler", "worker", "jupyter")}
    assert all(
        each == {"name": "EXTRA_PIP_PACKAGES", "value": "dask-slaq"} for each in packages.values()
    )
    command = at(["dask", "scheduler", *values["scheduler"]["extraArgs"]], port, free_port())
    process = subprocess.Popen(local(command, {}), env={**os.environ, **settings}, cwd=tmp_path)
    try:
        with Client(f"tcp://127.0.0.1:{port}", timeout=PATIENCE) as client:
            assert slaq.status(client)["policy"] == settings["DASK_SLAQ__POLICY"]
    finally:
        process.terminate()
        process.wait(PATIENCE)


def plain(requirement: str) -> str:
    """A requirement as conda writes it: no extras, a space before the bound."""
    return re.sub(r"\[.*?\]", "", requirement).replace(">=", " >=").replace("dask ", "dask-core ")


def test_conda_recipe_needs_what_the_package_needs():
    project, recipe = pyproject(), read(DEPLOY / "conda" / "recipe.yaml")
    needs = [*map(plain, project["project"]["dependencies"])]
    assert recipe["requirements"]["run"] == [
        f"python {project['project']['requires-python']}", *needs
    ]  # fmt: skip
    builds = {plain(each) for each in project["build-system"]["requires"]}
    assert builds <= set(recipe["requirements"]["host"])


def test_files_name_the_same_addresses():
    urls = pyproject()["project"]["urls"]
    about = read(DEPLOY / "conda" / "recipe.yaml")["about"]
    citation = read(ROOT / "CITATION.cff")
    assert {about["homepage"], about["repository"], citation["repository-code"]} == {
        urls["Repository"]
    }
    assert {about["documentation"], citation["url"]} == {urls["Documentation"]}
    owner = urls["Repository"].removeprefix("https://github.com/")
    assert f"--repo {owner}\n" in (ROOT / ".github" / "SECURITY.md").read_text()


def test_workflows_run_phases_of_the_script_on_the_pythons_we_name():
    script = (ROOT / ".ci" / "run").read_text()
    phases = set(re.findall(r"^run_(\w+)\(\)", script, re.MULTILINE))
    workflows = ROOT / ".github" / "workflows"
    matrix = read(workflows / "tests.yaml")["jobs"]["phase"]["strategy"]["matrix"]
    nightly = read(workflows / "nightly.yaml")["jobs"]["phase"]["strategy"]["matrix"]["include"]
    at_night = {each["phase"] for each in nightly}
    assert at_night == {"main", "uvloop", "free", "slow", "coverage"}
    by_day = {*matrix["phase"], *(each["phase"] for each in matrix["include"])}
    assert by_day == phases - at_night
    project = pyproject()["project"]
    named = [each.rpartition(" :: ")[2] for each in project["classifiers"] if ":: 3." in each]
    assert matrix["python"] == named
    oldest = re.search(r"^OLDEST=(\S+)", script, re.MULTILINE).group(1)
    assert f"distributed>={oldest}" in project["dependencies"]
    assert project["requires-python"] == f">={named[0]}"


def test_pre_commit_runs_the_linters_of_the_script():
    script = (ROOT / ".ci" / "run").read_text()
    lint = re.search(r"^run_lint\(\) \{\n(.*?)^\}", script, re.MULTILINE | re.DOTALL).group(1)
    commands = re.findall(r"\.venv/\$bin/(.+)", lint)
    (repo,) = read(ROOT / ".pre-commit-config.yaml")["repos"]
    hooks = [hook["entry"] for hook in repo["hooks"]]
    # A hook is given the files of a commit, and changes them where the script only looks.
    looks = [re.sub(r" (--check|\.)(?= |$)", "", command) for command in commands]
    assert [re.sub(r" --(fix|force-exclude)", "", hook) for hook in hooks] == looks
