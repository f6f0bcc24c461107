"""Looking changes nothing: queries at random moments leave every decision and transition as is."""

import json
import os
import subprocess
import sys

import pytest

RUN = """
import asyncio, hashlib, json, random, sys

import dask_slaq as slaq
from dask_slaq.scheduler.board import data
from benchmarks import virtual
from driving import inside

LOOKS = sys.argv[1] == "look"
transitions, grants = virtual.Transitions(), hashlib.sha256()
moments = random.Random(int(sys.argv[2]))  # apart from the generator that the run uses
seen = {}

async def train(client, name, fall, parts):
    async with slaq.job(name, client=client, target=1.1) as job:
        for k in range(12):
            tasks = client.map(virtual.work, range(parts), seconds=0.02 * (1 + k % 3), pure=False)
            await client.submit(virtual.work, *tasks, seconds=0.01, pure=False)
            job.report(fall ** k + 1)

async def look(plugin):
    while True:  # both runs wake at the same moments, and only one looks
        await asyncio.sleep(moments.uniform(0.01, 0.2))
        what, number = moments.choice(("status", "history", "explain", "board")), moments.random()
        names = list(inside(plugin).reports)
        if not (LOOKS and names):
            continue
        if what == "board":
            answer = data.data_of(plugin.scheduler)
        else:
            about = [names[int(number * len(names))]] if what == "explain" else []
            answer = inside(plugin).handler(what)(*about)
        assert answer
        seen[what] = seen.get(what, 0) + 1

async def main():
    async with virtual.Cluster(threads=[1] * 4) as cluster, cluster.client() as client:
        await client.register_plugin(slaq.SlaqPlugin())
        plugin = cluster.scheduler.plugins["slaq"]
        cluster.scheduler.add_plugin(transitions)
        reallocate = inside(plugin).reallocate

        def digested(*args, **kwargs):
            changed = reallocate(*args, **kwargs)
            terms = list(changed.terms())
            grants.update(repr((virtual.now(), terms)).encode())
            return changed

        inside(plugin).reallocate = digested
        looking = asyncio.create_task(look(plugin))
        jobs = ("a", 0.5, 8), ("b", 0.9, 6), ("c", 0.7, 3)
        await asyncio.gather(*(train(client, *job) for job in jobs))
        assert not looking.done(), looking
        looking.cancel()
        assert plugin.failed is None
    return {
        "transitions": [transitions.count, transitions.digest], "grants": grants.hexdigest(),
        "seen": seen,
    }

print(json.dumps(virtual.run(main, seed=3)))
"""


def begin(*arguments: str) -> subprocess.Popen[str]:
    """Three jobs on four workers, on the virtual clock, with or without looks at them."""
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", RUN, *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def found(run: subprocess.Popen[str]) -> dict:
    told, _ = run.communicate()
    assert run.returncode == 0
    return json.loads(told)


@pytest.mark.slow
def test_looking_at_random_moments_changes_no_transition_and_no_grant():
    pytest.importorskip("bokeh")
    plain, looked_at = map(found, [begin("wake", "1"), begin("look", "1")])
    assert sorted(looked_at.pop("seen")) == ["board", "explain", "history", "status"]
    assert plain.pop("seen") == {}
    assert plain == looked_at
    assert plain["transitions"][0] > 1000
