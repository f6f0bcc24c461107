"""Command line ``dask slaq``, also available as ``python -m dask_slaq``.

Commands import their dependencies when they run, because ``dask --help`` loads this module.
"""

from __future__ import annotations

import click

from dask_slaq.cli.advise import advise
from dask_slaq.cli.change_commands import pause, policy, resume, set_job, set_limit, set_owner, stop
from dask_slaq.cli.demo import demo
from dask_slaq.cli.look_commands import audit, explain, jobs, limits, owners, workers
from dask_slaq.cli.memory import memory
from dask_slaq.cli.replay import replay
from dask_slaq.cli.reserve import reserve
from dask_slaq.cli.simulate import simulate
from dask_slaq.cli.top import top
from dask_slaq.cli.usage import usage


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def slaq() -> None:
    """Quality-driven scheduling of machine learning jobs."""


LOOK = (top, jobs, owners, limits, workers, explain, audit, usage)
STEER = (set_job, pause, resume, stop, policy, reserve)
for command in (demo, replay, simulate, advise, memory, *LOOK, *STEER):
    slaq.add_command(command)
owners.add_command(set_owner)
limits.add_command(set_limit)
