"""Client API for training programs: `job`, `report`, `status`, `history`, `bindings`."""

from dask_slaq.client.job import Job as Job
from dask_slaq.client.job import job as job
from dask_slaq.client.job import report as report
from dask_slaq.client.queries import bindings as bindings
from dask_slaq.client.queries import history as history
from dask_slaq.client.queries import status as status
