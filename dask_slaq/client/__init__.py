"""Client API: jobs and their reports, queries, and steering of running jobs."""

from dask_slaq.client.blocks import job as job
from dask_slaq.client.blocks import search as search
from dask_slaq.client.changes import change as change
from dask_slaq.client.changes import pause as pause
from dask_slaq.client.changes import set_limit as set_limit
from dask_slaq.client.changes import set_owner as set_owner
from dask_slaq.client.changes import set_policy as set_policy
from dask_slaq.client.changes import stop as stop
from dask_slaq.client.changes import unpause as unpause
from dask_slaq.client.connection import check_started as check_started
from dask_slaq.client.connection import introduce as introduce
from dask_slaq.client.connection import request as request
from dask_slaq.client.job_block import Job as Job
from dask_slaq.client.live import alerts as alerts
from dask_slaq.client.live import progress as progress
from dask_slaq.client.queries import bindings as bindings
from dask_slaq.client.queries import ended as ended
from dask_slaq.client.queries import explain as explain
from dask_slaq.client.queries import history as history
from dask_slaq.client.queries import reservations as reservations
from dask_slaq.client.queries import reserve as reserve
from dask_slaq.client.queries import seconds_of as seconds_of
from dask_slaq.client.queries import status as status
from dask_slaq.client.queries import unreserve as unreserve
from dask_slaq.client.queries import usage as usage
from dask_slaq.client.queries import whatif as whatif
from dask_slaq.client.queries import workers as workers
from dask_slaq.client.search_block import Search as Search
from dask_slaq.client.submit import submit as submit
from dask_slaq.client.training import Pruned as Pruned
from dask_slaq.client.training import report as report
from dask_slaq.client.training import trial as trial
from dask_slaq.client.trials_table import Best as Best
from dask_slaq.client.trials_table import Trial as Trial

#: What the package offers of it.
__all__ = ["Pruned", "alerts", "change", "ended", "explain", "history", "job", "pause", "progress"]
__all__ += ["report", "reservations", "reserve", "search", "set_limit", "set_owner", "set_policy"]
__all__ += ["status", "stop", "submit", "trial", "unpause", "unreserve", "usage", "whatif"]
