"""The replays of searches keep every model, and agree with the grids that they replay."""

import json
import math

import pytest
from commands import as_json

from benchmarks.search_policies.__main__ import FIGURES, OURS, main, measure
from benchmarks.search_policies.grids import Grid, read_grids
from benchmarks.search_policies.replay import Forecasts, Replay
from benchmarks.search_policies.rivals import RIVALS, run

STEPS = 12


@pytest.fixture(scope="module")
def grid() -> Grid:
    """Models that fall at unlike rates to unlike losses; one diverges."""
    curves = [
        [0.1 * m + (1 + m % 3) * (0.5 + 0.1 * (m % 4)) ** k for k in range(STEPS)]
        for m in range(12)
    ]
    curves[7][5:] = [math.inf] * (STEPS - 5)
    return Grid.of("made", curves, [1 + m % 2 for m in range(12)])


@pytest.mark.parametrize("policy", [name for name, of in OURS.items() if "prune" not in of])
def test_a_search_trains_every_model_to_its_end_once(grid, policy):
    forecasts = Forecasts(grid)
    for order in grid.orders(3):
        replay = Replay(grid, forecasts, order, workers=2, threads=2, **OURS[policy])
        events = replay.run()
        steps = [(event.model, event.step) for event in events]
        assert sorted(steps) == [(m, k + 1) for m in range(12) for k in range(STEPS)]
        assert [event.time for event in events] == sorted(event.time for event in events)
        # No more run than there are threads: the time is at least the work by them.
        assert events[-1].time >= sum(grid.seconds) * STEPS / 4 - 1e-9
        again = Replay(grid, forecasts, order, workers=2, threads=2, **OURS[policy]).run()
        assert again == events


@pytest.mark.parametrize("policy", list(RIVALS))
def test_rivals_make_each_step_at_most_once(grid, policy):
    events = run(RIVALS[policy](grid, grid.orders(1)[0]), 4)
    steps = [(event.model, event.step) for event in events]
    assert len(set(steps)) == len(steps)
    if policy in ("plain", "median", "oracle"):
        assert len(steps) == 12 * STEPS
        assert measure(grid, events, events[-1].time)["kept5"] == 5


def test_grids_are_read_from_a_folder(tmp_path):
    rows = [{"loss": [2.0, 1.0], "s": 0.5}, {"loss": [3.0, None], "s": 1.5}]
    (tmp_path / "some.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (grid,) = read_grids(tmp_path)
    assert (grid.name, grid.seconds) == ("some", (0.5, 1.5))
    assert grid.losses == ((2.0, 1.0), (3.0, math.inf)) and grid.ranked == [0, 1]
    (tmp_path / "wrong.jsonl").write_text('{"loss": [1]}\n{"loss": [1, 2]}')
    with pytest.raises(ValueError, match="same number of steps"):
        read_grids(tmp_path)


def test_the_command_prints_figures_by_grid_and_policy():
    result = as_json(main, "--quick")
    assert result
    for policies in result.values():
        assert {"plain", "search", "prune", "asha", "oracle"} <= policies.keys()
        assert all(set(FIGURES) == row.keys() for row in policies.values())
        assert policies["plain"]["best"] == policies["plain"]["all"] == 1
        assert policies["search"]["lost"] == 0 and policies["search"]["kept5"] == 5
