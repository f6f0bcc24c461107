"""Names are one line of text in which nothing ends, hides or turns around."""

import asyncio

import pytest

from dask_slaq.cli.usage import _csv
from dask_slaq.client.connection import request
from dask_slaq.core import settings
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.memory import read_kind
from dask_slaq.core.task_reports import as_metrics
from dask_slaq.core.text import printable
from dask_slaq.core.trials import bounded
from dask_slaq.core.usage import Usage
from dask_slaq.memory import usage_as_dicts

#: A line break, escape code, lone surrogate, bidi override, zero-width space, line separator.
HOSTILE = [
    "a\nb",
    "a\x1b[2Jb",
    "a\ud800b",
    "a\u202eb",
    "a\u2066b",
    "a\u200bb",
    "a\u2028b",
    "a\ufeffb",
]
CHECKS = {
    "job": settings.check_name,
    "stage": settings.check_stage,
    "owner": settings.check_owner,
    "kind": read_kind,
    "number of a kind": lambda name: read_kind({"name": "a", name: 1.0}),
    "label": lambda name: settings.check_limits({name: 1}),
    "resource": lambda name: settings.check_resources({name: 1}),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("what", CHECKS)
def test_a_name_that_moves_hides_or_turns_text_is_refused(what, name):
    CHECKS[what]("a\u00e4\u05d0\u4e2d b")
    with pytest.raises(InvalidSetting) as error:
        CHECKS[what](name)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_shown_and_sent_is_printable(name):
    assert printable(name).isprintable()
    assert list(as_metrics({name: 1.0})) == [printable(name)]
    ((key, value),) = bounded({name: name}).items()
    assert key.isprintable() and value.encode()


@pytest.mark.parametrize("what", [{"by": "\ud800"}, {"a": [("b", {"\udfff": 1})]}])
def test_a_lone_surrogate_is_not_sent(what):
    with pytest.raises(InvalidSetting, match="Unicode"):
        asyncio.run(request(None, "slaq_steer", **what))


@pytest.mark.parametrize("name", [*HOSTILE, "=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_gets_text(name):
    rows = usage_as_dicts({(name,): Usage()}, ["owner"])
    _, line = _csv(rows, ["owner"]).splitlines()
    assert line.isprintable() and line[0] not in "=+-@"
