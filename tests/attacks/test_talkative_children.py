"""Child processes that print more than a pipe can hold. No process may wait forever."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.cli.terminal import footplate
from tests.engine.supervisor.supervised import ROOT

pytestmark = pytest.mark.attacks


@pytest.fixture
def talkative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every Python process that inspects datasets or samples GPUs print large amounts of text when it starts."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "if any(word in ('engine.data', 'engine.gpus') for word in getattr(sys, 'orig_argv', [])):\n"
        "    sys.stderr.write('a warning of a library\\n' * 20_000)\n"
        "    sys.stderr.flush()\n"
    )
    monkeypatch.setenv("PYTHONPATH", f"{site}:{ROOT}")


@pytest.mark.usefixtures("talkative")
def test_flood_of_inspector_does_not_block_window(tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    done = footplate("train", str(tmp_path / "none"), "--devices", "cpu")
    assert done.code == 2
    assert "could not be inspected" not in done.err


@pytest.mark.usefixtures("talkative")
def test_flood_of_sampler_does_not_block_window() -> None:
    done = footplate("gpus", "--json")
    assert done.code == 0, done.err[-500:]
    assert done.out.startswith("{")
