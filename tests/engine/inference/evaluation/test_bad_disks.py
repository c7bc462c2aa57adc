"""Evaluations on full, broken or read-only disks. The error must be reported, and no partial files may remain."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.cli.terminal import footplate
from tests.faults.damage import make_read_only
from tests.support.trained_runs import train_small_model
from tests.support.worker_group import ROOT, Forker

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
    ),
]


def test_failing_disk_is_reported_without_leftovers(forker: Forker, tmp_path: Path) -> None:
    library, source = tmp_path / "bad_disk.so", ROOT / "tests/support/bad_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=120)
    run = train_small_model(forker, tmp_path, "classification").run.path
    evaluations, file = run / "evaluations", tmp_path / "fault"
    evaluations.mkdir()
    environment = {"LD_PRELOAD": str(library), "BAD_DISK": str(evaluations.resolve()), "BAD_DISK_FAULT": str(file)}
    for fault, keyword in (("torn", "full"), ("write", "error"), ("rename", "error"), ("sync", "error")):
        file.write_text(fault)
        answer = footplate("evaluate", str(run), "--checkpoint", "last", **environment)
        assert answer.code in (2, 3), answer
        assert keyword in answer.err.lower() or "no space left" in answer.err.lower(), answer.err
        assert "Traceback" not in answer.err
        assert list(evaluations.iterdir()) == []
    with make_read_only(evaluations):
        answer = footplate("evaluate", str(run), "--checkpoint", "last")
    assert answer.code == 2
    assert f"can't be saved in {run}: Read-only file system" in answer.err
    assert list(evaluations.iterdir()) == []
