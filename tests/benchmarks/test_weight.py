"""What a scheduler loads, how it starts and what its epochs take is measured in every part."""

from pathlib import Path

import pytest
from commands import as_json

import dask_slaq
from benchmarks import epoch, startup, weight


@pytest.mark.slow
def test_a_scheduler_loads_neither_programs_of_users_nor_the_simulator():
    rows = {row["part"]: row for row in as_json(weight.main)}
    for part in ("client", "worker", "adapters", "simulation", "demo"):
        assert rows[part]["package"] > rows[part]["everything"] == 0
    counts = [rows["all"][stage] for stage in weight.STAGES]
    assert counts == sorted(counts) and counts[-1] < rows["all"]["package"]
    assert rows["memory"]["jobs"] < rows["memory"]["everything"]


#: What a cluster needs that has owners, labels, a file, adaptive workers, or somebody who looks.
ON_DEMAND = (
    *("core/owners.py", "core/owner_settings.py", "core/budgets.py", "core/reservations.py"),
    *("core/notice_terms.py", "core/usage_sums.py", "core/history_views.py", "core/rivals.py"),
    "core/scaling_terms.py",
    *("core/policies/baselines.py", "core/policies/themis.py", "core/policies/guarded.py"),
    "core/memory/stages.py",
    *("core/forecast/guarded.py", "core/forecast/hypotheses.py", "memory/filed.py"),
    *("scheduler/spares.py", "scheduler/scaling.py"),
    *("scheduler/filed_accounts.py", "scheduler/reserved.py", "scheduler/job_states.py"),
    *("scheduler/pools/gangs.py", "scheduler/pools/label_limits.py", "scheduler/pools/stages.py"),
    *("scheduler/pools/blocking.py", "scheduler/pools/checks.py", "scheduler/views/families.py"),
    *("scheduler/requests/audit.py", "scheduler/requests/steering.py"),
    *("scheduler/requests/questions.py", "scheduler/requests/of_trials.py"),
    *("scheduler/views/explanation.py", "scheduler/views/curves.py", "scheduler/views/usage.py"),
)


@pytest.mark.slow
def test_jobs_load_nothing_that_only_other_clusters_need():
    folder = Path(dask_slaq.__file__).parent
    assert [name for name in ON_DEMAND if not (folder / name).exists()] == []
    with weight._scheduler([]) as client:
        weight._train(client)
        loaded = client.run_on_scheduler(weight._loaded)
    assert [name for name in ON_DEMAND if str(folder / name) in loaded] == []


@pytest.mark.slow
def test_each_step_of_the_start_is_measured():
    rows = as_json(startup.main, "--repetitions", "1")
    assert [row["step"] for row in rows] == ["import distributed", "start the scheduler"]
    assert rows[1]["plugin_mb"] > rows[0]["plugin_mb"] > 0


@pytest.mark.slow
def test_epochs_are_measured_with_and_without_past_runs():
    (row,) = as_json(epoch.main, "--jobs", "8", "--epochs", "1", "--known")
    assert row["jobs"] == 8
    parts = ("reports_ms", "decision_ms", "grants_ms", "dispatch_ms")
    assert row["epoch_ms"] == pytest.approx(sum(row[part] for part in parts))
    assert row["known_epoch_ms"] > row["known_decision_ms"] > 0
    assert row["history_mb_per_hour"] > 0
