"""Client API: jobs and their reports, queries, and steering of running jobs."""

from dask_slaq.client.changes import pause as pause
from dask_slaq.client.changes import resume as resume
from dask_slaq.client.changes import set_job as set_job
from dask_slaq.client.changes import set_limit as set_limit
from dask_slaq.client.changes import set_owner as set_owner
from dask_slaq.client.changes import set_policy as set_policy
from dask_slaq.client.changes import stop as stop
from dask_slaq.client.connection import check_started as check_started
from dask_slaq.client.connection import introduce as introduce
from dask_slaq.client.connection import request as request
from dask_slaq.client.job_block import Job as Job
from dask_slaq.client.job_block import job as job
from dask_slaq.client.job_block import report as report
from dask_slaq.client.live import alerts as alerts
from dask_slaq.client.live import progress as progress
from dask_slaq.client.queries import bindings as bindings
from dask_slaq.client.queries import ended as ended
from dask_slaq.client.queries import explain as explain
from dask_slaq.client.queries import history as history
from dask_slaq.client.queries import seconds_of as seconds_of
from dask_slaq.client.queries import status as status
from dask_slaq.client.queries import usage as usage
from dask_slaq.client.queries import workers as workers
from dask_slaq.client.search import Search as Search
from dask_slaq.client.search import search as search
from dask_slaq.client.submit import submit as submit
