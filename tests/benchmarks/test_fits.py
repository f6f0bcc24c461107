"""Recorded fits are replayed under every policy, with the latency of messages."""

import json
import time

import pytest
from commands import as_json

from benchmarks import virtual
from benchmarks.common.metrics import JobTrace
from benchmarks.fits import real
from benchmarks.fits.__main__ import main
from benchmarks.fits.real import Setting
from benchmarks.fits.recording import Fit, _iterations, lengthen

FITS = {
    name: {"iterations": [[0.01, [0.002] * 9]] * 6 + [[0.01, None]], "losses": [9, 4, 2, 1, 1, 1]}
    for name in ("one", "two")
}


def test_policies_run_the_same_fits_with_and_without_latency(tmp_path):
    recorded = tmp_path / "fits.json"
    recorded.write_text(json.dumps(FITS))
    given = ["--fits", str(recorded), "--lists", "six", "--seeds", "1", "--charge", "0"]
    given += ["--policies", "none,fair,oracle", "--processes", "1"]
    found = as_json(main, *given)["six"]
    assert list(found) == ["0", "4ms"]
    for rows in found.values():
        assert list(rows) == ["none", "fair", "oracle"]
        for row in rows.values():
            assert 0 < row["t90_mean_s"] <= row["t95_mean_s"] <= row["completion_mean_s"]
            assert row["completion_mean_s"] <= row["makespan_s"] and 0 < row["busy"] <= 1
    assert found["4ms"]["none"]["makespan_s"] > 1.2 * found["0"]["none"]["makespan_s"]


def test_a_round_trip_takes_twice_the_latency():
    async def trip():
        async with virtual.Cluster([1]) as cluster, cluster.client() as client:
            await client.submit(virtual.work, key="first")
            begin = virtual.now()
            # To the scheduler, to the worker and back, and to the client.
            await client.submit(virtual.work, key="second")
            return virtual.now() - begin

    virtual.set_latency(0.1)
    try:
        assert virtual.run(trip) == pytest.approx(0.4, abs=0.02)
    finally:
        virtual.set_latency(0.0)
    assert virtual.run(trip) < 0.02


def test_a_longer_fit_has_the_same_beginning_and_end():
    fit = Fit([(0.0, [1.0])] * 5 + [(0.0, [])], [10.0, 1.0, 0.5, 0.2, 0.0])
    assert fit.reports_to(0.9) == 2
    longer = lengthen(fit, 3)
    assert len(longer.losses) == 2 + 3 * 3 == len(longer.iterations) - 1
    assert longer.losses[:2] == fit.losses[:2] and longer.losses[-1] == 0.0
    assert longer.losses == sorted(longer.losses, reverse=True)


def test_what_no_task_computes_is_the_drivers_time():
    runs = [(1.0, 2.0), (1.5, 2.5), (4.0, 5.0)]
    assert _iterations(runs, [0.0, 3.0, 6.0]) == [(1.5, [1.0, 1.0]), (2.0, [1.0])]


def test_real_fits_are_the_same_under_every_policy_and_last_as_their_table_says(tmp_path):
    setting = Setting(2, 2.0, fits=2, rows=1_000, part=0.2, table=str(tmp_path / "table.json"))
    runs = {}
    real.measure(setting, ["none", "first-to-target"], [0.1], [0], 1, lambda line: None, runs)
    table = json.loads((tmp_path / "table.json").read_text())
    assert len(table) > 10 and all(0 < seconds < 1 for seconds in table.values())
    plain, ours = (done.run for [done] in runs["0.1s"].values())
    for trace, other in zip(plain.traces, ours.traces, strict=True):
        assert (trace.name, trace.arrival) == (other.name, other.arrival)
        assert trace.losses == pytest.approx(other.losses) and len(trace.losses) > 2
    rows = real.compare(runs["0.1s"])
    assert rows["none"]["worst"] == rows["none"]["over_none"]["t90_mean_s"] == 1
    row = rows["first-to-target"]
    assert row["t90_mean_s"] <= row["completion_mean_s"] <= row["makespan_s"]
    assert 0 < row["utilization"] <= 1 and row["charged_s"] > 0 and row["cores"] > 0
    assert sum(row["by_group"].values()) == pytest.approx(1)
    assert "first-to-target" in real.show("0.1s", rows)


def test_a_task_lasts_as_its_table_says():
    class Sum:
        key = ("sum-0123", 0)

        def __call__(self, inputs):
            return sum(inputs.values())

    def run(task, inputs):
        return task(inputs)

    with real.Stretched() as pool:
        assert pool.submit(run, Sum(), {"a": 1, "b": 2}).result() == 3
        [kind] = pool.seen
        assert kind.startswith("sum ")
        pool.table, pool.stretch = {kind: 0.01}, 5.0
        begin = time.perf_counter()
        assert pool.submit(run, Sum(), {"a": 1, "b": 2}).result() == 3
        assert time.perf_counter() - begin >= 0.05


def test_cores_are_counted_by_normalized_loss():
    traces = [
        JobTrace("begins", 0.0, [1.5, 3.5], [4.0, 0.0], 4.0),
        JobTrace("ends", 0.0, [0.1, 0.2], [4.0, 0.0], 4.0),
    ]
    spans = {"begins": [("w", 100.0, 104.0)], "ends": [("w", 101.5, 102.0)]}
    highest, following, lowest = real.cores(traces, spans, 100.0)
    assert highest == following == pytest.approx(2.0) and lowest == pytest.approx(0.5)
