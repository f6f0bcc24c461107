"""Proposals to Dask: each patch applies to the release that it is for, and passes its tests."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import distributed
import pytest

FOLDER = Path(__file__).parents[1] / "docs" / "proposals"
RELEASE = re.search(r"distributed (\d+\.\d+\.\d+)", (FOLDER / "index.md").read_text())[1]


@pytest.mark.slow
@pytest.mark.skipif(distributed.__version__ != RELEASE, reason=f"patches are for {RELEASE}")
@pytest.mark.parametrize("patch", sorted(FOLDER.glob("*.patch")), ids=lambda path: path.stem)
def test_a_patch_applies_and_passes_its_tests(patch, tmp_path):
    package = Path(distributed.__file__).parent
    unneeded = shutil.ignore_patterns("__pycache__")
    shutil.copytree(package, tmp_path / "distributed", ignore=unneeded)
    run = {"cwd": tmp_path, "check": True, "env": {**os.environ, "GIT_CEILING_DIRECTORIES": "/"}}
    subprocess.run(["git", "apply", patch], **run)
    tests = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "distributed/tests"]
    subprocess.run([sys.executable, *tests], timeout=120, **run)
