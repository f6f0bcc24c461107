"""The board moves in a browser without an error: at its address, and below a prefix."""

import contextlib
import shutil
import time
from urllib.parse import quote

import pytest
from distributed import LocalCluster, wait
from distributed.utils_test import inc
from driving import PATIENCE

import dask_slaq as slaq
from dask_slaq.lab.demo.local import DemoRun, DemoTraining, Result
from dask_slaq.lab.demo.report import page as demo_page
from dask_slaq.scheduler.board.routes import PLOTS

pytest.importorskip("bokeh", reason="bokeh is not installed")
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
]

#: Largest number of points of a line on the page.
POINTS = """() => Math.max(0, ...[...Bokeh.documents[0]._all_models.values()]
    .filter(m => m.type === 'ColumnDataSource' && m.data.job && m.data.y)
    .map(m => m.data.y[0]?.length ?? 0))"""

#: Texts of the rows of the tables on the page.
ROWS = """() => {
    const all = root => [...root.querySelectorAll('*')]
        .flatMap(e => e.shadowRoot ? [e, ...all(e.shadowRoot)] : [e]);
    return all(document).filter(e => e.classList.contains('slick-row')).map(e => e.innerText);
}"""


@contextlib.contextmanager
def running_cluster(prefix):
    """A cluster with the plugin, and the address of its dashboard."""
    with (
        LocalCluster(
            n_workers=1,
            processes=False,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"http_prefix": prefix},
        ) as cluster,
        cluster.get_client() as client,
    ):
        client.register_plugin(slaq.SlaqPlugin(epoch="100ms"))
        yield client, cluster.scheduler.http_server.port


@contextlib.contextmanager
def new_page():
    """A page of a browser, on which nothing may fail."""
    errors = []
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: errors.append(said.text) if said.type == "error" else None)
        yield page
        browser.close()
    assert errors == []


def drawn(page):
    page.wait_for_function("() => window.Bokeh && Bokeh.documents.length > 0")


def watch(client, address):
    """Open the board from Dask's status page, and look at its curves while a job reports."""
    with new_page() as page:
        page.goto(f"{address}/status")
        page.get_by_role("link", name="Slaq").click()
        assert page.url == f"{address}/slaq"
        drawn(page)
        with slaq.job("a", client=client) as job:
            deadline, n, seen = time.monotonic() + PATIENCE, 0, [0]
            while seen[-1] < seen[0] + 5 and time.monotonic() < deadline:
                client.submit(inc, n, pure=False).result()
                job.report(1.0 / (1 + n))
                page.wait_for_timeout(100)
                seen.append(page.evaluate(POINTS))
                n += 1
            rows = page.evaluate(ROWS)
            while page.evaluate(ROWS) == rows and time.monotonic() < deadline:
                job.report(1.0 / (1 + n))
                page.wait_for_timeout(100)
                n += 1
            assert page.evaluate(ROWS) != rows, "the table of as many jobs as before is not drawn"
        # Single plots are what JupyterLab's Dask extension shows.
        page.goto(f"{address}/individual-slaq-loss")
        drawn(page)
    assert seen[-1] >= seen[0] + 5


@pytest.mark.parametrize("prefix", ["", "/user/ann"])
def test_curves_move_and_nothing_fails(prefix):
    with running_cluster(prefix) as (client, port):
        watch(client, f"http://127.0.0.1:{port}{prefix}")


def train(params):
    for step in range(20):
        time.sleep(0.1)
        slaq.report(params["rate"] + 1 / (step + 1))


def test_the_page_of_a_search_moves_and_nothing_fails():
    with running_cluster("/user/ann") as (client, port), new_page() as page:
        with slaq.search("grid", steps=20, client=client) as search:
            futures = search.map(train, [{"rate": rate} for rate in (0.1, 0.2, 0.3)])
        page.goto(f"http://127.0.0.1:{port}/user/ann/slaq")
        page.get_by_role("link", name="grid").click()
        drawn(page)
        wait(futures)
        rows, deadline = [], time.monotonic() + PATIENCE
        while not all("done" in row for row in rows or [""]) and time.monotonic() < deadline:
            page.wait_for_timeout(200)
            rows = page.evaluate(ROWS)
    assert [row.split()[3] for row in rows] == ["0.15", "0.25", "0.35"]


HOSTILE = """<img src=x onerror=alert(1)>"'><script>alert(2)</script>$$x$$ <%= alert(3) %>"""


def fails(params):
    slaq.report({"loss": 1.0, HOSTILE: 2.0})
    slaq.report({"loss": 0.5, HOSTILE: 1.0})
    if params[HOSTILE] == HOSTILE:
        raise ValueError(HOSTILE)


def test_no_text_of_anybody_runs_in_a_browser():
    """Names of everything, in each page, query and table, hovered over as well."""
    dialogs = []
    with running_cluster("") as (client, port), playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("dialog", lambda dialog: (dialogs.append(page.url), dialog.accept()))
        about = {"client": client, "owner": HOSTILE}
        slaq.set_limit(HOSTILE, 1, client=client)
        with slaq.search(HOSTILE, steps=20, **about) as search:
            given = [{HOSTILE: HOSTILE}, {HOSTILE: HOSTILE[:-1]}]
            wait(futures := search.map(fails, given))
        with slaq.job(HOSTILE[:-1], kind=HOSTILE, **about) as job, slaq.search("open", **about):
            wait(held := client.submit(inc, 1, key=HOSTILE))
            for n in range(20):
                job.report(1.0 / (1 + n))
            plots = [f"individual-slaq-{plot}" for plot in PLOTS]
            asked = f"?name={quote(HOSTILE)}"
            paths = ["slaq", f"slaq{asked}", "status", f"slaq-search{asked}"]
            paths += [f"slaq-search{asked}x", "slaq-search", *plots, "metrics"]
            for path in paths:
                page.goto(f"http://127.0.0.1:{port}/{path}")
                if "slaq" in path and "json" not in path:
                    drawn(page)
                    page.wait_for_timeout(1500)  # the page asks for its data once per second
                    if path == f"slaq-search{asked}":
                        titles = page.locator(".slick-column-name").all_inner_texts()
                        assert any(HOSTILE in title for title in titles), titles
                    for canvas in page.locator(".bk-Figure").all():
                        box = canvas.bounding_box()
                        for k in range(1, 12) if box else ():
                            at = box["x"] + box["width"] * k / 12, box["y"] + box["height"] * k / 12
                            page.mouse.move(*at)
            tables = [slaq.status(client), job, search]
            shown = [each._repr_html_() for each in tables]
        training = DemoTraining(
            HOSTILE, curve=[(1.0, 1.0), (2.0, 0.5)], spans=[(HOSTILE, 1.0, 2.0)]
        )
        run = DemoRun(HOSTILE, [training], start=0.0)
        found = Result(HOSTILE, [run], {HOSTILE: {"t90_s": 1.0}}, {"t90_s": HOSTILE}, HOSTILE)
        for text in [*shown, demo_page(found, [[HOSTILE], [HOSTILE]])]:
            assert HOSTILE not in text
            page.set_content(text)
            page.wait_for_timeout(100)
        browser.close()
        del futures, held
    assert not dialogs
