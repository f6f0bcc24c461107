"""The Grafana dashboard asks only for metrics that exist."""

import json
import re
from pathlib import Path

from dask_slaq.scheduler.views.metrics import FAMILIES

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def test_every_query_names_metrics_that_exist():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel["targets"]]
    assert queries
    for query in queries:
        names = re.findall(r"\bdask_slaq_(\w+)", query)
        assert names and set(names) <= set(FAMILIES), query
