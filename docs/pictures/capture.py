"""Pictures of the board and of ``dask slaq top``, from a cluster with six jobs.

Run ``python docs/pictures/capture.py`` from the root of the repository. It needs the extras ``dev``
and Chromium, takes a minute, and overwrites ``docs/board.png``, ``docs/top.png``
and ``docs/search.png``. The jobs sleep instead of training, so that any machine
draws much the same.
"""

from __future__ import annotations

import asyncio
import io
import math
import random
import shutil
import tempfile
import time
from pathlib import Path

from distributed import Client, LocalCluster
from playwright.sync_api import Browser, sync_playwright
from rich.console import Console

import dask_slaq as slaq
from dask_slaq.cli.options import close, connect
from dask_slaq.cli.top import screen_of

DOCS = Path(__file__).parent.parent
#: Name, owner, factor of the loss per iteration, tasks per iteration, seconds of each, settings.
JOBS = (
    ("logreg-C0.1", "ann@laptop", 0.93, 6, 0.1, {"target": 0.1, "max_iter": 200}),
    ("logreg-C1", "ann@laptop", 0.95, 6, 0.1, {}),
    ("kmeans-8", "ann@laptop", 0.97, 6, 0.1, {"target": 0.3}),
    ("xgboost-depth6", "bob@node7", 0.96, 8, 0.2, {}),
    ("bayes-7", "bob@node7", 0.9, 4, 0.1, {"target": 0.2}),
    ("search-17", "cleo@lab", 0.98, 8, 0.1, {}),
)
#: Seconds between the beginning of two jobs, and from the last one to the pictures.
APART, SECONDS = 1.5, 30.0


def train(client: Client, factor: float, tasks: int, seconds: float) -> None:
    """Stand in for a training that never ends."""
    loss = 2.0
    while True:
        client.gather([client.submit(time.sleep, seconds, pure=False) for _ in range(tasks)])
        loss *= factor
        slaq.report(0.05 + loss)


def picture_board(browser: Browser, address: str) -> None:
    """Take the picture of the board."""
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.goto(f"{address}/slaq")
    page.wait_for_function("() => window.Bokeh && Bokeh.documents.length > 0")
    page.wait_for_timeout(12_000)
    page.screenshot(path=DOCS / "board.png")


def train_model(params: dict[str, float | int | str]) -> None:
    """Stand in for the training of one model of a search."""
    noise = random.Random(str(params))
    rate, depth = float(params["lr"]), int(params["depth"])
    best = 0.3 + 0.2 * abs(math.log10(rate) + 2) + 0.02 * abs(depth - 5)
    for step in range(40):
        time.sleep(0.05)
        slaq.report(best + 2 * math.exp(-8 * step * rate) + noise.gauss(0, 0.01))


def picture_search(browser: Browser, client: Client, address: str) -> None:
    """Take the picture of the page of a search, half-way."""
    draw = random.Random(0)
    grid = [
        {
            "lr": 10 ** draw.uniform(-4, -0.5),
            "depth": draw.randint(2, 9),
            "act": draw.choice(["relu", "tanh", "gelu"]),
        }
        for _ in range(40)
    ]
    with slaq.search("grid", steps=40, prune=True, client=client) as search:
        futures = search.map(slaq.trial(train_model), grid)
    time.sleep(10)
    page = browser.new_page(viewport={"width": 1500, "height": 1000})
    page.goto(f"{address}/slaq-search?name=grid")
    page.wait_for_function("() => window.Bokeh && Bokeh.documents.length > 0")
    page.wait_for_timeout(4_000)
    page.screenshot(path=DOCS / "search.png")
    search.stop()
    client.gather(futures, errors="skip")


async def draw_top(address: str) -> str:
    """Return the screen of ``dask slaq top`` with an explanation, as SVG."""
    client = await connect(address, 5.0)
    shown = await screen_of(client, job="kmeans-8", text="", sort="job", owners=False)
    await close(client)
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_svg(title="dask slaq top")


def picture_top(browser: Browser, screen: str) -> None:
    """Take the picture of ``dask slaq top`` from its screen as SVG."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "top.html"
        style = "<style>body { margin: 0 } svg { width: 1400px }</style>"
        file.write_text(style + screen)
        page = browser.new_page(viewport={"width": 1400, "height": 600})
        page.goto(file.as_uri())
        page.locator("svg").first.screenshot(path=DOCS / "top.png")


def main() -> None:
    """Take all pictures."""
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(policy="max-total"))
        futures = []
        for name, owner, factor, tasks, seconds, settings in JOBS:
            arguments = (client, factor, tasks, seconds)
            futures.append(slaq.submit(train, *arguments, name=name, owner=owner, **settings))
            time.sleep(APART)
        time.sleep(SECONDS)
        port = cluster.scheduler.http_server.port
        screen = asyncio.run(draw_top(cluster.scheduler_address))
        with sync_playwright() as driver:
            browser = driver.chromium.launch(
                executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
                args=["--no-sandbox"],
            )
            picture_board(browser, f"http://127.0.0.1:{port}")
            picture_top(browser, screen)
            for future in futures:
                future.cancel()
            picture_search(browser, client, f"http://127.0.0.1:{port}")
            browser.close()


if __name__ == "__main__":
    main()
