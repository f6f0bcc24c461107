"""README's Python blocks run. ``python tests/test_readme.py`` tries them on an installation."""

import re
import subprocess
import sys
from pathlib import Path

import dask

README = Path(__file__).parents[1] / "README.md"

#: What has come of it.
SEEN = """
assert all(future.result() < 1 for future in futures)
assert {trial["iteration"] for trial in search.trials()} == {40}
seen = slaq.history(client).iteration.max("epoch")
for name in ("logreg-C0.1", "mine"):
    print(f"{name}: {int(seen.sel(job=name))} reports")
client.close()
"""


def program() -> str:
    """Return README's Python blocks as one program."""
    blocks = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3, "a block came or went: say here what it takes as given"
    jobs, search, looking = blocks
    # A job can be explained while it is open.
    jobs += "\n".join(f"    {line}" for line in looking.splitlines())
    return "\n".join([jobs, search, SEEN])


def run(folder: str | Path) -> list[str]:
    """Run the program in a folder without a checkout, and return its last lines."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program()],
        cwd=folder, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-2:]


def test_readme_runs(tmp_path):
    fit, loop = run(tmp_path)
    assert fit.startswith("logreg-C0.1: ") and loop == "mine: 100 reports"


if __name__ == "__main__":
    print(*run("."), sep="\n")


def test_the_quick_start_shows_a_table_as_it_comes_out():
    page = (Path(__file__).parents[1] / "docs" / "quick-start.md").read_text()
    (by,) = re.findall(r'sort_values\("(\w+)"\)', page)
    (shown,) = re.findall(r"```text\n( +state .*?)```", page, re.DOTALL)
    head, *rows = (line.split() for line in shown.splitlines())
    keys = [float(row[1 + head.index(by)]) for row in rows]
    assert keys == sorted(keys)
    ended = [row[1 + head.index("predicted")] for row in rows if row[1] == "done"]
    assert {*ended} == {"NaN"}


def test_the_quick_start_makes_its_cluster_whatever_scheduler_is_configured():
    page = (Path(__file__).parents[1] / "docs" / "quick-start.md").read_text()
    (block,) = re.findall(r"```python\n(from distributed import Client.*?)```", page, re.DOTALL)
    names = {}
    with dask.config.set({"scheduler-address": "tcp://127.0.0.1:1"}):
        exec(block.replace("LocalCluster(", "LocalCluster(dashboard_address=None, "), names)
        assert names["client"].submit(abs, -1).result() == 1
        names["client"].close()
        names["cluster"].close()
