"""Form with paths on a disk that doesn't respond. The window must not block."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PySide6.QtCore import QObject
from pytestqt.qtbot import QtBot

from engine.checks.disk import Kind, RealDisk
from gui.form import cached_disk
from gui.form.cached_disk import CachedDisk
from gui.form.form import JobForm
from tests.gui.form.test_form import fill_in, problem_at
from tests.support.widgets import HoldCalls

ROOT = Path(__file__).parents[3]
LONGEST_STALL_S = 2.0
"""Maximum time in seconds that the window may block while a disk doesn't respond."""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("cc") is None, reason="needs Linux and a C compiler"
)
def test_dead_disk_does_not_block_typing(tmp_path: Path, images: Path) -> None:
    library = tmp_path / "dead_disk.so"
    source = ROOT / "tests/support/dead_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True, timeout=120)
    environment = os.environ | {"LD_PRELOAD": str(library), "DEAD_DISK": "/dead", "PYTHONPATH": str(ROOT)}
    script = [sys.executable, str(ROOT / "tests/gui/form/typing_on_a_dead_disk.py"), str(images)]
    done = subprocess.run(script, env=environment, capture_output=True, text=True, check=False, timeout=350)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    stall, threads = results.pop("longest_stall_s"), results.pop("threads")
    assert results == dict.fromkeys(results, True)
    assert stall < LONGEST_STALL_S
    assert threads < 15


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch, hold_calls: HoldCalls) -> threading.Event:
    """Make model files unreadable until the test sets the returned event."""
    monkeypatch.setattr(cached_disk, "GRACE_S", 0.02)
    return hold_calls(RealDisk, "model_file")


def test_late_disk_answer_is_used(
    form: JobForm, images: Path, model_file: Path, answers: threading.Event, qtbot: QtBot
) -> None:
    fill_in(form, images, qtbot)
    form.set_field("model", str(model_file))
    qtbot.waitUntil(lambda: form.train.toolTip() == f"Waiting for the disk: {model_file}.")
    assert not form.train.isEnabled()
    qtbot.keyClicks(form.rows["name"].editor.control, "night shift")
    qtbot.waitUntil(lambda: form.job is not None and form.job.name == "night shift")
    assert problem_at(form, "model") == ""
    answers.set()
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    assert "not allowed to run yet" in problem_at(form, "model")


def test_start_waits_for_the_disk(
    form: JobForm, images: Path, model_file: Path, answers: threading.Event, qtbot: QtBot
) -> None:
    answers.set()
    fill_in(form, images, qtbot)
    form.set_field("model", str(model_file))
    form.set_field("image_size", None)
    qtbot.waitUntil(lambda: form.consent.isVisibleTo(form))
    form.consent._allow.click()
    qtbot.waitUntil(form.train.isEnabled)
    answers.clear()
    with qtbot.waitSignal(form.train_requested) as blocker:
        form.start()
        assert not form.train.isEnabled()
        assert not blocker.args
        answers.set()
    (job,) = blocker.args
    assert job.model.name == str(model_file)


def test_failed_query_is_raised_and_repeated(qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parent = QObject()
    disk, path = CachedDisk(parent), str(tmp_path)
    with monkeypatch.context() as patch, qtbot.capture_exceptions() as raised:
        patch.setattr(RealDisk, "kind", lambda _disk, path: int(path))
        disk.kind(path)
        disk.refresh()
        qtbot.waitUntil(lambda: bool(raised))
    assert isinstance(raised[0][1], ValueError)
    assert disk.unanswered == [path]
    disk.refresh()
    qtbot.waitUntil(lambda: disk.kind(path) == "folder")
    disk.start_pass()
    disk.start_pass()
    assert disk.kind(path) is None, "the last pass didn't contain the question"


@pytest.mark.parametrize("forget", [False, True])
def test_refresh_during_a_refresh_follows_it(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forget: bool
) -> None:
    """Check that a change of the disk is noticed if a running refresh has already read the old state."""
    was_read, released = threading.Event(), threading.Event()
    real = RealDisk.kind

    def slow(disk: RealDisk, path: str) -> Kind:
        kind = real(disk, path)
        was_read.set()
        assert released.wait(120)
        return kind

    monkeypatch.setattr(RealDisk, "kind", slow)
    monkeypatch.setattr(cached_disk, "GRACE_S", 0.02)
    path = tmp_path / "dataset"
    parent = QObject()
    disk = CachedDisk(parent)
    disk.kind(str(path))
    disk.refresh()
    assert was_read.wait(120)
    path.mkdir()
    disk.start_pass(forget=forget)
    disk.kind(str(path))
    disk.refresh()
    released.set()
    qtbot.waitUntil(lambda: disk.kind(str(path)) == real(RealDisk(), str(path)))
