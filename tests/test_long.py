"""Script that runs the long tests, run on a small source tree."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("long")
TEST = "import time\nimport pytest\n\n@pytest.mark.{}\ndef test_that_it_passes():\n    {}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    tests = tmp_path / "tests"
    tests.mkdir()
    shutil.copy(SCRIPT, tests / "long")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\nmarkers = ['long: takes long']\n")
    for name, body in (("fails", "assert False"), ("passes", "pass")):
        (tests / f"test_{name}.py").write_text(TEST.format("long", body))
    (tests / "test_quick.py").write_text("def test_that_it_is_quick():\n    assert False\n")
    return tmp_path


def run(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(tree / "tests/long"), *arguments], capture_output=True, text=True, check=False, timeout=100
    )


def test_file_whose_cases_are_marked_by_a_helper_is_listed(tree: Path) -> None:
    (tree / "tests/cases.py").write_text("import pytest\n\nLONG = pytest.param(1, marks=pytest.mark.long)\n")
    test = "import pytest\nfrom cases import LONG\n\n@pytest.mark.parametrize('x', [LONG])\ndef test(x):\n    pass\n"
    (tree / "tests/test_marked.py").write_text(test)
    files = [line.split()[-1] for line in run(tree, "--list").stdout.splitlines()]
    assert files == ["tests/test_fails.py", "tests/test_marked.py", "tests/test_passes.py"]


def test_failed_file_does_not_stop_the_others(tree: Path) -> None:
    done = run(tree)
    assert done.returncode == 1
    assert done.stdout.endswith("Failed:\ntests/test_fails.py\n")
    assert list(json.loads((tree / ".long-tests.json").read_text())) == ["tests/test_passes.py"]
    never, passed = run(tree, "--list").stdout.splitlines()
    assert never.startswith("never")
    assert never.endswith("tests/test_fails.py")
    assert passed.startswith("20")
    assert passed.endswith("tests/test_passes.py")


def test_slow_file_is_killed(tree: Path) -> None:
    (tree / "tests/test_hangs.py").write_text(TEST.format("long", "time.sleep(600)"))
    done = run(tree, "--limit", "0.02", "tests/test_hangs.py")
    assert done.returncode == 1
    assert "tests/test_hangs.py was killed after 1 s." in done.stdout
    assert not (tree / ".long-tests.json").exists()
