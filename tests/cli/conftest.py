"""A scheduler in another process with two jobs, and the commands that look at and steer it."""

import time

import dask
import pytest
from click.testing import CliRunner
from distributed import Client
from scheduler_process import end, start_scheduler

import dask_slaq as slaq
from dask_slaq.cli.main import slaq as command

HOSTILE = "red <b>[bold]"  # a name is text of users'


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """The scheduler file of a scheduler on which ann is the only operator."""
    settings = {"DASK_SLAQ__OPERATORS": '["ann"]', "DASK_SLAQ__OWNERS": '{"bob": {"weight": 3}}'}
    process, file = start_scheduler(tmp_path_factory.mktemp("scheduler"), **settings)
    yield file
    end(process)


@pytest.fixture(scope="module")
def training(file):
    """Two jobs of bob's; the first has reported."""
    with (
        Client(scheduler_file=file, set_as_default=False) as client,
        slaq.job("a", owner="bob@lab", client=client, max_iter=9) as first,
        slaq.job(HOSTILE, owner="bob@lab", client=client),
    ):
        first.report(0.5)
        while not slaq.status(client)["jobs"]["a"]["iteration"]:
            time.sleep(0.01)
        yield client


@pytest.fixture
def on_scheduler(file):
    """Run ``dask slaq`` as some owner; the scheduler is the one of `file` unless said otherwise."""

    def run(*arguments, by="ann@desk", where=("--scheduler-file", file)):
        with dask.config.set({"slaq.owner": by}):
            result = CliRunner().invoke(command, [*arguments, *where])
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result

    return run
