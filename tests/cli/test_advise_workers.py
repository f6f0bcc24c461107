"""``dask slaq advise --workers``: how many workers pay on a running scheduler, in words."""

import json
import time

import pytest

import dask_slaq as slaq


@pytest.fixture
def waiting(training):
    """Tasks of a job on a scheduler without workers."""
    with slaq.job("waits", owner="bob@lab", client=training):
        futures = training.map(time.sleep, [1.0] * 4, pure=False)
        while slaq.status(training)["jobs"]["waits"]["ready"] < 4:
            time.sleep(0.01)
        yield
        del futures


def test_it_says_how_many_workers_pay_and_what_others_would_change(on_scheduler, waiting):
    def run(*arguments, code=0):
        result = on_scheduler("advise", *arguments)
        assert result.exit_code == code, result.output
        return result.output.strip()

    text = run("--workers")
    assert text.startswith("1 worker pays now: another one would save ")
    assert text.endswith(" worker-hours")  # the scheduler has no price
    text = "4 workers instead of 0: all would end at last, for 0.10 worker-hours more"
    assert run("--workers", "4") == text

    def is_json(constant):
        raise AssertionError(f"{constant} is no JSON")

    found = json.loads(run("--workers", "4", "--json", "-"), parse_constant=is_json)
    assert (found["workers"], found["target"], found["text"]) == (0, 1, text)
    assert found["last"] is None  # they never end without workers
    assert "from 0 to 1000, not 100000" in run("--workers", "100000", code=1)
