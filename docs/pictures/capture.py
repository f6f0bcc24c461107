"""Pictures of the board, the page of a search and the report of the demo.

Run ``python docs/pictures/capture.py`` from the root of the repository, or with ``board``,
``search`` or ``demo`` for one of them. It needs the extras ``dev`` and Chromium, takes four
minutes, and overwrites ``board.png``, ``search.png``, and ``demo.png`` in ``docs``.
Jobs and models are small real fits that sleep, as if they read data, so that any machine draws much
the same.
"""

from __future__ import annotations

import io
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split

import dask_slaq as slaq

DOCS = Path(__file__).parent.parent
GOOD = {"target": 0.8, "target_kind": "reduction"}
#: Name, owner, learning rate, weight decay and settings of each job.
JOBS: tuple[tuple[str, str, float, float, dict[str, Any]], ...] = (
    ("softmax-0.3", "ann@laptop", 0.3, 0.0, {"max_iter": 200}),
    ("softmax-0.1", "ann@laptop", 0.1, 0.0, GOOD),
    ("softmax-1.0", "ann@laptop", 1.0, 0.0, {"target": 0.5}),
    ("decay-0.3", "bob@node7", 0.3, 0.01, {}),
    ("decay-0.1", "bob@node7", 0.1, 0.01, GOOD),
    ("decay-0.05", "cleo@lab", 0.05, 0.01, {}),
)
#: Seconds between the beginning of two jobs, and from the last one to the pictures.
APART, SECONDS = 1.5, 35.0
BLOCKS, READ = 8, 0.08
MODELS, STEPS = 40, 40


def gradient(block: int, weights: np.ndarray) -> tuple[float, np.ndarray]:
    """Return loss and gradient of a softmax regression on a block of scikit-learn's digits."""
    time.sleep(READ)  # as if the block came from a disk
    X, y = (each[block::BLOCKS] for each in load_digits(return_X_y=True))
    likely = np.exp(X / 16 @ weights)
    likely /= likely.sum(axis=1, keepdims=True)
    error = likely - np.eye(10)[y]
    return -float(np.log(likely[np.arange(len(y)), y]).mean()), (X / 16).T @ error / len(y)


def fit(client: Client, rate: float, decay: float) -> None:
    """Train until the job is cancelled."""
    weights = np.zeros((64, 10))
    while True:
        tasks = client.map(gradient, range(BLOCKS), weights=weights, pure=False)
        losses, gradients = zip(*client.gather(tasks), strict=True)
        slaq.report(float(np.mean(losses)))
        weights = weights - rate * (np.mean(gradients, axis=0) + decay * weights)


def open_page(browser: Browser, address: str, seconds: float) -> Page:
    """Open a page of the dashboard, and let it draw."""
    page = browser.new_page(viewport={"width": 1700, "height": 960})
    page.set_default_timeout(120_000)
    page.goto(address)
    page.wait_for_function("() => window.Bokeh && Bokeh.documents.length > 0")
    page.wait_for_timeout(1000 * seconds)
    return page


def save(shown: Any, name: str, **how: Any) -> None:
    """Save a picture of a page or of a part of it, in few colors."""
    picture = Image.open(io.BytesIO(shown.screenshot(**how))).convert("RGB")
    few = picture.quantize(256, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(DOCS / name, optimize=True)


def picture_board(browser: Browser) -> None:
    """Take the picture of the board."""
    workers = {"n_workers": 2, "threads_per_worker": 2, "processes": False}
    with (
        LocalCluster(dashboard_address="127.0.0.1:0", **workers) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(policy="max-total"))
        futures = []
        for name, owner, rate, decay, settings in JOBS:
            about = {"name": name, "owner": owner, **settings}
            futures.append(slaq.submit(fit, client, rate, decay, **about))
            time.sleep(APART)
        time.sleep(SECONDS)
        port = cluster.scheduler.http_server.port
        page = open_page(browser, f"http://127.0.0.1:{port}/slaq", 12)
        save(page, "board.png")
        for future in futures:
            future.cancel()


def train(params: dict[str, Any]) -> None:
    """Train one model of a search."""
    X, y = load_digits(return_X_y=True)
    X, X_valid, y, y_valid = train_test_split(X / 16, y, random_state=0)
    model = SGDClassifier(loss="log_loss", learning_rate="constant", random_state=0, **params)
    for _ in range(STEPS):
        time.sleep(0.05)
        model.partial_fit(X, y, classes=range(10))
        slaq.report(log_loss(y_valid, model.predict_proba(X_valid), labels=range(10)))


def picture_search(browser: Browser) -> None:
    """Take the picture of the page of a search, half-way."""
    draw = random.Random(0)
    grid = [
        {
            "eta0": 10 ** draw.uniform(-4.5, 0),
            "alpha": 10 ** draw.uniform(-6, -1),
            "penalty": draw.choice(["l1", "l2", "elasticnet"]),
        }
        for _ in range(MODELS)
    ]
    workers = {"n_workers": 4, "threads_per_worker": 2}
    with (
        LocalCluster(dashboard_address="127.0.0.1:0", **workers) as cluster,
        Client(cluster) as client,
    ):
        client.register_plugin(slaq.SlaqPlugin())
        with slaq.search("grid", steps=STEPS, prune=True, client=client) as search:
            futures = search.map(slaq.trial(train), grid)
        port = cluster.scheduler.http_server.port
        page = open_page(browser, f"http://127.0.0.1:{port}/slaq-search?name=grid", 1)
        while sum(trial["state"] == "done" for trial in search.trials()) < 4:
            page.wait_for_timeout(100)
        page.wait_for_timeout(1_000)  # which draws them
        save(page, "search.png")
        client.gather(futures)


def picture_demo(browser: Browser) -> None:
    """Take the picture of the report of ``dask slaq demo``."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "demo.html"
        subprocess.run([sys.executable, "-m", "dask", "slaq", "demo", "--html", file], check=True)
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.goto(file.as_uri())
        page.wait_for_timeout(2_000)  # which draws the charts
        save(page, "demo.png", full_page=True)


def main() -> None:
    """Take the pictures that the command line names, or all."""
    pictures = {"board": picture_board, "search": picture_search, "demo": picture_demo}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"),
            args=["--no-sandbox"],
        )
        for name in sys.argv[1:] or pictures:
            pictures[name](browser)
        browser.close()


if __name__ == "__main__":
    main()
