"""Files and folders of the package stay small enough to find one's way."""

from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "dask_slaq"
MOST_LINES, MOST_MODULES = 300, 14


def test_no_file_is_long():
    lines = {path: len(path.read_text().splitlines()) for path in PACKAGE.rglob("*.py")}
    assert {str(path): n for path, n in lines.items() if n > MOST_LINES} == {}


def test_no_folder_has_many_modules():
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    modules = {folder: len(list(folder.glob("*.py"))) for folder in folders}
    assert {str(folder): n for folder, n in modules.items() if n > MOST_MODULES} == {}
