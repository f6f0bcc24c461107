"""The live table shows the best models of a search, where no other block is open."""

import asyncio

from cli.test_top import first
from distributed import Event, wait

import dask_slaq as slaq
from dask_slaq.cli.options import Where


def hold_then_report(params):
    slaq.report(params["lr"])
    Event("go").wait()
    slaq.report(params["lr"] / 2)


def test_top_shows_the_best_models_of_a_search(local_client):
    local_client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    where = Where(address=local_client.scheduler.address)
    with slaq.search("grid", client=local_client) as search:  # another one may be current here
        futures = search.map(hold_then_report, [{"lr": 0.5}, {"lr": 0.25}])
        text = asyncio.run(first(where, with_text="0.25", job="grid"))
        Event("go", client=local_client).set()
        wait(futures)
    head = next(line for line in text.splitlines() if "loss" in line and " lr " in line)
    lines = text[text.index(head) :].splitlines()
    assert [line.split()[:2] for line in lines[2:4]] == [["1", "0.25"], ["2", "0.5"]]
