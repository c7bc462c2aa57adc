"""Child processes that print more than a pipe holds: nobody waits forever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.supervisor.supervised import ROOT

pytestmark = pytest.mark.attacks


@pytest.fixture
def talkative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make every Python process that inspects or samples GPUs print a flood."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "if any(word in ('engine.data', 'engine.gpus') for word in getattr(sys, 'orig_argv', [])):\n"
        "    sys.stderr.write('a warning of a library\\n' * 20_000)\n"
        "    sys.stderr.flush()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")
    return site


def footplate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "footplate.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.usefixtures("talkative")
def test_flood_of_inspector_does_not_block_window(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = footplate("train", str(tmp_path / "none"), "--devices", "cpu")
    assert done.returncode == 2
    assert "could not be inspected" not in done.stderr


@pytest.mark.usefixtures("talkative")
def test_flood_of_sampler_does_not_block_window() -> None:
    done = footplate("gpus", "--json")
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("{")
