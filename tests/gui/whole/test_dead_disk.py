"""Real window whose runs folder stops responding."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.long
@pytest.mark.parametrize("trap", [False, True])
@pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_dead_runs_folder_blocks_neither_pages_nor_closing(tmp_path: Path, separate_home: Path, trap: bool) -> None:
    library, dead = tmp_path / "dead_disk.so", tmp_path / "dead"
    source = ROOT / "tests/support/dead_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=120)
    environment = os.environ | {"LD_PRELOAD": str(library), "DEAD_DISK": str(dead), "PYTHONPATH": str(ROOT)}
    environment["DEAD_DISK_SINCE"] = str(tmp_path / "since")
    if trap:
        environment["DEAD_DISK_TRAP"] = "1"
    script = [sys.executable, "-m", "tests.gui.whole.window_on_a_dead_disk"]
    done = subprocess.run(script, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=250)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout.splitlines()[-1])
    assert results["dead"]
    assert results["touched"] == []
    # Pages themselves take some time, and more when they are shown for the first time, which is before the disk dies.
    assert results["longest_stall_s"] < min(0.25, results["longest_stall_before_s"] + 0.05)
    assert results["closed_s"] < 2
