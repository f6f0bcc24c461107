"""Recorded fits are replayed under every policy, with the latency of messages."""

import json

import pytest
from commands import as_json

from benchmarks import virtual
from benchmarks.fits.__main__ import main
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
