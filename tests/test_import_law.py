"""The import law: what each part of the package may import and mention."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from structure import circles, modules

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dask_slaq"
MODULES = sorted(PACKAGE.rglob("*.py"))
POOLS = PACKAGE / "scheduler" / "pools"

#: What a clock, I/O or Dask would come in by.
IMPURE = {
    "asyncio", "concurrent", "dask", "datetime", "distributed", "io", "logging", "multiprocessing",
    "os", "pathlib", "queue", "random", "socket", "subprocess", "sys", "tempfile", "threading",
    "time", "tornado",
}  # fmt: skip
#: Slow or optional: imported where they are needed, never with the package.
LAZY = {
    "bokeh", "catboost", "dask_glm", "dask_ml", "keras", "lightgbm", "lightning", "matplotlib",
    "optuna", "rich", "scipy", "sklearn", "skorch", "torch", "transformers", "xarray",
    "xgboost",
}  # fmt: skip
#: What a part may import with itself.
ALLOWED = {"core": {"scipy"}}
#: A folder whose modules define classes of an optional library: nothing imports them but what
#: needs them, when it runs. Its face is imported early, and must not import them.
OF_LIBRARY = {PACKAGE / "scheduler" / "board": {"bokeh"}}


def of_part(name: str) -> list[Path]:
    return [path for path in MODULES if part(path) == name]


def ours(path: Path, *allowed: str) -> list[str]:
    """What a module imports of this package and may not."""
    names = [name for name in imports(path) if top(name) == "dask_slaq"]
    return [f"{path}: {name}" for name in names if not within(name, *allowed)]


def part(path: Path) -> str:
    """The subpackage of a module, or its own name at the top level."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def package_of(path: Path) -> list[str]:
    return list(path.relative_to(ROOT).parent.parts)


def targets(path: Path, node: ast.AST) -> list[str]:
    """Full names of the modules, and of what comes from them, in an import statement."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    here = package_of(path)
    base = here[: len(here) - node.level + 1] if node.level else []
    source = ".".join([*base, *(node.module or "").split(".")]).strip(".")
    return [f"{source}.{alias.name}" for alias in node.names]


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imports(path: Path) -> list[str]:
    """Everything that a module imports, anywhere in it."""
    nodes = ast.walk(tree(path))
    return [name for node in nodes for name in targets(path, node)]


def for_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def at_import(node: ast.AST) -> Iterator[ast.AST]:
    """Statements that run when the module is imported."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if for_typing(child):
            continue
        yield child
        yield from at_import(child)


def top(name: str) -> str:
    return name.partition(".")[0]


def within(name: str, *allowed: str) -> bool:
    return any(name == module or name.startswith(module + ".") for module in allowed)


def test_core_imports_core_alone():
    for path in of_part("core"):
        assert ours(path, "dask_slaq.core") == []
        assert sorted({top(name) for name in imports(path)} & IMPURE) == [], path


LAB = PACKAGE / "lab"


def test_only_commands_and_simulate_need_the_lab():
    """A scheduler, a worker and a client load nothing of it."""
    outside = {path for path in MODULES if not path.is_relative_to(LAB)}
    needing = {
        path for path in outside if any(within(name, "dask_slaq.lab") for name in imports(path))
    }
    for path in needing - {PACKAGE / "__init__.py"}:
        assert part(path) == "cli", path
    commands = {PACKAGE / "cli" / name for name in ("demo.py", "simulate.py")}
    for path in outside - commands:  # `main` loads these when they are called
        names = [name for node in at_import(tree(path)) for name in targets(path, node)]
        assert not any(within(name, "dask_slaq.lab", "dask_slaq.cli.simulate") for name in names)


def test_simulation_imports_core_and_itself():
    for path in (LAB / "simulation").rglob("*.py"):
        assert ours(path, "dask_slaq.core", "dask_slaq.lab.simulation") == []
        assert not {top(name) for name in imports(path)} & {"dask", "distributed"}, path


def test_what_to_persist_needs_no_scheduler_of_ours():
    allowed = "dask_slaq.core", "dask_slaq.lab.persisting", "dask_slaq.cli.text"
    for path in (LAB / "persisting").rglob("*.py"):
        assert ours(path, *allowed) == []


def touches_tasks(path: Path) -> bool:
    """Whether a module sets the restrictions of tasks, or calls transitions."""
    names = {"worker_restrictions", "transitions"}
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and node.attr == "transitions":
            return True
        stores = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if stores and node.attr in names:
            return True
        if isinstance(node, ast.Constant) and node.value in names:  # as in getattr
            return True
        if isinstance(node, ast.keyword) and node.arg == "worker_restrictions":
            return True
    return False


def test_only_one_module_touches_tasks():
    touching = [path for path in MODULES if touches_tasks(path)]
    assert [path.parent for path in touching] == [POOLS], touching


def is_open(folder: Path) -> bool:
    """Whether a folder only holds modules of one subject: it has no face."""
    return len(tree(folder / "__init__.py").body) == 1


def test_outside_a_package_only_its_face_is_imported():
    for path in MODULES:
        here = ".".join(package_of(path))
        for name in imports(path):
            inner = name.split(".")[:4]  # dask_slaq, part, package, module
            package = ".".join(inner[:3])
            folder = ROOT / Path(*inner[:3])
            if (
                here.startswith(package)
                or not (folder / "__init__.py").is_file()
                or is_open(folder)
            ):
                continue
            module = (ROOT / Path(*inner)).with_suffix(".py")
            # A module may be imported as such, and nothing from inside of it.
            as_such = not module.exists() or len(name.split(".")) == 4
            assert as_such, f"{path}: {name}: import it from {package}"


def test_no_module_of_a_package_hides_a_name_of_its_face():
    """A module that is imported becomes an attribute of its package, in place of such a name."""
    for path in (path for path in MODULES if path.name == "__init__.py"):
        package, at_once = ".".join(package_of(path)), {id(node) for node in at_import(tree(path))}
        for node in (node for node in ast.walk(tree(path)) if isinstance(node, ast.ImportFrom)):
            for name in (alias.asname or alias.name for alias in node.names):
                is_module = (path.parent / f"{name}.py").exists() and node.module != package
                first = id(node) in at_once and node.module == f"{package}.{name}"
                assert not is_module or first, f"{package}.{name} is also a module"


def test_heavy_libraries_are_imported_lazily():
    for path in MODULES:
        allowed = ALLOWED.get(part(path), set())
        if path.name != "__init__.py":
            allowed = allowed | OF_LIBRARY.get(path.parent, set())
        nodes = at_import(tree(path))
        names = {top(name) for node in nodes for name in targets(path, node)}
        assert sorted(names & LAZY - allowed) == [], path


def locks_of_imports(folder: Path) -> dict[str, set[str]]:
    """By module, the modules that an import of it waits for while it has the lock of the first.

    Whoever imports ``a.b.c`` has its lock while ``a.b`` is imported, unless that is done.
    """
    known, waits = modules(folder), defaultdict(set)
    for module, path in known.items():
        for node in at_import(tree(path)):
            names = [each.name for each in getattr(node, "names", ())]
            if isinstance(node, ast.ImportFrom):
                waits[module] |= {f"{node.module}.{name}" for name in names} & known.keys()
                names = [node.module]
            for name in names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if name in known and not within(module, name):
                    waits[module].add(name)
                while name in known and not within(module, package := name.rpartition(".")[0]):
                    waits[name].add(package)
                    name = package
    return waits


def test_any_two_modules_can_be_imported_at_the_same_time():
    """Python gives one of two that wait for each other a module that is half there."""
    locks = locks_of_imports(PACKAGE)
    assert len(locks) > 100  # it has found imports
    TopologicalSorter(locks).prepare()


def test_modules_do_not_import_each_other_in_a_circle():
    """Not for types either: a module can be read with what it imports, and without the rest."""
    assert not circles(PACKAGE)
    assert not circles(ROOT / "benchmarks")


def test_circles_are_found(tmp_path):
    folder = tmp_path / "some"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "a.py").write_text("from some.b import x")
    (folder / "b.py").write_text("def f():\n    import some.c")
    (folder / "c.py").write_text("from some import a")
    (folder / "d.py").write_text("from some import a")
    assert circles(folder) == [("some.a", "some.b", "some.c")]
