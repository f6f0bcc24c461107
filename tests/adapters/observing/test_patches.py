"""Patches of loops are installed and undone, shown on a toy library without Dask."""

import importlib
import random
import sys
import threading

import pytest

from dask_slaq.adapters.observing import session as blocks
from dask_slaq.adapters.observing.loops import Loop, LoopObserver
from dask_slaq.adapters.observing.patches import Patches

SOURCE = """
def compute(loss):
    return loss

def wrapped(algo):
    def wrapper(*args, **kwargs):
        return algo(*args, **kwargs)
    return wrapper

@wrapped
def descend(n, *, start=10.0):
    for k in range(n):
        start = compute(start) - 1
    return start

def plain(n):
    return [compute(k) for k in range(n)][-1]
"""


class Losses(LoopObserver):
    stands_in = ("compute",)

    def compute(self, loss):
        self.safely(self.report, loss)
        return self.library["compute"](loss)


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Name of a module that can be imported and is not yet."""
    (tmp_path / "slaq_toy.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "slaq_toy", raising=False)
    yield "slaq_toy"
    sys.modules.pop("slaq_toy", None)


@pytest.fixture(autouse=True)
def forget_warnings(monkeypatch):
    monkeypatch.setattr(blocks, "_warned", set())
    monkeypatch.setattr(blocks.warn_once, "__defaults__", (set(),))


def loops(*names, watch=Losses):
    return [Loop("slaq_toy", n, watch, cell="algo" if n == "descend" else None) for n in names]


def state(module):
    return {**vars(module), "cell": module.descend.__closure__[0].cell_contents}


def same(before, after):
    return before.keys() == after.keys() and all(before[k] is after[k] for k in before)


def test_observes_cells_and_attributes_and_restores_both(toy):
    module = importlib.import_module(toy)
    before, descend = state(module), module.descend
    losses = []
    with Patches(loops("descend", "plain")), blocks.opened(losses.append):
        assert descend(3) == 7.0
        assert module.plain(2) == 1
    assert losses == [10.0, 9.0, 8.0, 0.0, 1.0]
    assert same(before, state(module))


def test_patches_a_module_imported_inside(toy):
    finders = list(sys.meta_path)
    losses = []
    with Patches(loops("descend")), blocks.opened(losses.append):
        module = importlib.import_module(toy)
        module.descend(2)
    assert losses == [10.0, 9.0]
    assert sys.meta_path == finders
    assert module.__loader__ is module.__spec__.loader
    assert type(module.__loader__).__name__ == "SourceFileLoader"
    assert module.descend.__closure__[0].cell_contents.__name__ == "descend"


def test_an_import_that_fails_inside_fails_as_ever(toy, tmp_path):
    (tmp_path / "slaq_toy.py").write_text("1 / 0")
    with Patches(loops("descend")):
        with pytest.raises(ZeroDivisionError):
            importlib.import_module(toy)
        assert toy not in sys.modules
        (tmp_path / "slaq_toy.py").write_text(SOURCE + "# longer, so it is compiled anew\n")
        importlib.invalidate_caches()
        module = importlib.import_module(toy)
        assert module.descend.__closure__[0].cell_contents.__wrapped__


def test_waits_for_an_import_that_another_thread_has_begun(toy, tmp_path):
    begun, go_on = threading.Event(), threading.Event()
    sys.modules["slaq_toy_events"] = (begun, go_on)
    pause = (
        "import sys\nbegun, go_on = sys.modules['slaq_toy_events']\nbegun.set()\ngo_on.wait(30)\n"
    )
    (tmp_path / "slaq_toy.py").write_text(pause + SOURCE)
    importer = threading.Thread(target=importlib.import_module, args=(toy,))
    importer.start()
    assert begun.wait(30)
    threading.Timer(0.05, go_on.set).start()
    losses = []
    with Patches(loops("descend")), blocks.opened(losses.append):
        sys.modules[toy].descend(1)
    importer.join(30)
    del sys.modules["slaq_toy_events"]
    assert losses == [10.0]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("", "is not there"),
        ("def descend(n): compute(n)", "is no wrapper around 'algo'"),
        (SOURCE.replace("compute(start)", "start"), "does not use compute"),
        (SOURCE.replace("@wrapped", "@wrapped\n@staticmethod"), "is no plain function"),
    ],
)
def test_a_loop_that_is_not_as_expected_costs_one_warning(toy, tmp_path, source, reason):
    (tmp_path / "slaq_toy.py").write_text(source)
    module = importlib.import_module(toy)
    before = dict(vars(module))
    with pytest.warns(RuntimeWarning, match=f"slaq_toy.descend {reason}") as warned:
        for _ in range(3):
            with Patches(loops("descend")):
                pass
    assert len(warned) == 1
    assert dict(vars(module)) == before


def test_a_parameter_that_is_gone_costs_one_warning(toy):
    class Needs(Losses):
        needs = ("lamduh",)

    importlib.import_module(toy)
    with (
        pytest.warns(RuntimeWarning, match="has no parameter lamduh"),
        Patches(loops("descend", watch=Needs)),
    ):
        pass


def test_what_others_put_there_meanwhile_stays(toy):
    module = importlib.import_module(toy)
    with Patches(loops("plain")):
        wrapper = module.plain
        module.plain = theirs = lambda n: wrapper(n)
    assert module.plain is theirs
    assert theirs(3) == 2


@pytest.mark.parametrize("where", ["__init__", "stands_in", "finish"])
def test_a_bug_in_a_watch_costs_one_warning(toy, where):
    class Buggy(Losses):
        pass

    def bug(self, *args):
        raise AssertionError("a bug")

    if where == "stands_in":
        Buggy.compute = property(bug)
    else:
        setattr(Buggy, where, bug)
    module = importlib.import_module(toy)
    with (
        Patches(loops("descend", watch=Buggy)),
        blocks.opened(lambda loss: None),
        pytest.warns(RuntimeWarning, match="a bug") as warned,
    ):
        assert module.descend(2) == module.descend(2) == 8.0
    assert len(warned) == 1


def test_losses_that_are_not_finite_are_left_out(toy):
    module = importlib.import_module(toy)
    losses = []
    with (
        Patches(loops("descend")),
        blocks.opened(blocks.finite_only(losses.append)),
        pytest.warns(RuntimeWarning, match="a loss of inf was not reported") as warned,
    ):
        module.descend(2, start=float("inf"))
        module.descend(1)
    assert losses == [10.0]
    assert len(warned) == 1


def test_many_threads_entering_and_leaving_in_any_order(toy):
    module = importlib.import_module(toy)
    before, finders = state(module), list(sys.meta_path)
    patches = Patches(loops("descend", "plain"))
    failures = []

    def work(seed):
        rng = random.Random(seed)
        try:
            for i in range(200):
                n = rng.randrange(1, 4)
                if rng.random() < 0.3:
                    module.descend(n)  # no block
                    continue
                losses = []
                with patches, blocks.opened(losses.append):
                    module.descend(n, start=100.0 * seed)
                    if rng.random() < 0.3:
                        with patches, blocks.opened(lambda loss: None):
                            module.plain(n)
                assert losses == [100.0 * seed - k for k in range(n)], i
        except BaseException as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not failures
    assert same(before, state(module))
    assert sys.meta_path == finders
