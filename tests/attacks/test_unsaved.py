"""Disks that are full when a run saves its final state."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QFileDialog
from pytestqt.qtbot import QtBot

from engine.cli.terminal import BAD_REQUEST, UNSAVED
from engine.contract.events import CommandReceived, RunFinished, Warned
from engine.contract.protocol import Pause, SaveElsewhere, Stop
from gui.run.page import RunPage
from gui.sources.run_session import RunSession
from tests.engine.supervisor.supervised import ROOT
from tests.faults.conftest import Follow, StartStepwise, Uninterrupted
from tests.faults.damage import Gate, Listener, fill_disk, mount, open_listener, unmount
from tests.faults.real_runs import RealRun, assert_same_checkpoints
from tests.gui.conftest import OFFSCREEN_NOISE
from tests.gui.conftest import styled as styled  # noqa: PLC0414  (a fixture)

pytestmark = pytest.mark.attacks

SHORT_S, LONG_S = 0.2, 600.0
FOOTPLATE = (sys.executable, str(ROOT / "footplate.py"))


def test_run_with_unsaved_final_state_is_not_completed(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, uninterrupted: Uninterrupted
) -> None:
    run = start_stepwise(save_again_s=SHORT_S)
    with open_listener(run) as client:
        filler = fill_disk(small_disk)
        gate.permit_all_steps()
        trying = client.wait_for_warning("unsaved").message
        assert f"is full. The final state is kept in memory, and saving is retried for {SHORT_S:.0f} s" in trying
        finished = client.wait_for(RunFinished)
    assert finished.outcome == "unsaved"
    assert "the disk (or the quota) of" in finished.cause
    assert "The state after step 18 wasn't saved; last.pt contains step 4." in finished.cause
    assert finished.cause.endswith("then resume the run.")
    run.wait_for_processes_to_end()
    filler.unlink()
    assert run.saved == 4
    job = run.job
    before = run.last_n
    run.resume().completed(since=before)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job))


def test_final_state_is_saved_once_disk_has_space(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, uninterrupted: Uninterrupted
) -> None:
    run = start_stepwise(save_again_s=LONG_S)
    with open_listener(run) as client:
        filler = fill_disk(small_disk)
        gate.permit_all_steps()
        client.wait_for_warning("unsaved")
        filler.unlink()
    run.completed()
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(run.job))
    *_, last = [event.code for event in run.list_events(Warned) if event.code in ("checkpoint_failed", "unsaved")]
    assert last == "unsaved"  # not every attempt is reported


def test_pause_on_full_disk_reports_unsaved_state(small_disk: Path, start_stepwise: StartStepwise, gate: Gate) -> None:
    run = start_stepwise(save_again_s=SHORT_S)
    fill_disk(small_disk)
    gate.permit_steps(9, run, saved=False)
    command = [*FOOTPLATE, "pause", run.folder.run_id]
    pausing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with open_listener(run) as client:
        client.wait_for(CommandReceived)
        gate.permit_all_steps()
    output, complaint = pausing.communicate(timeout=120)
    assert pausing.returncode == UNSAVED
    assert f"{run.folder.run_id} is unsaved" in output
    assert "last.pt contains step 4." in complaint


def test_pause_reports_saved_step(start_stepwise: StartStepwise, gate: Gate) -> None:
    run = start_stepwise()
    command = [*FOOTPLATE, "pause", run.folder.run_id]
    pausing = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with open_listener(run) as client:
        client.wait_for(CommandReceived)
        gate.permit_all_steps()
    output, _ = pausing.communicate(timeout=120)
    assert pausing.returncode == 0
    assert f"{run.folder.run_id} is paused" in output
    assert f"checkpoints/last.pt holds step {run.saved}." in output


def save(run: RealRun, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [*FOOTPLATE, "save", run.folder.run_id, "--to", str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def save_and_get_refusal(run: RealRun, client: Listener, folder: Path | str) -> str:
    """Request that the run save its final state in `folder`, and return the run's message that this isn't possible."""
    client.messages.clear()
    run.send(SaveElsewhere(folder=str(folder)))
    return client.wait_for_warning("not_saved_elsewhere").message


def test_final_state_is_saved_elsewhere_and_resumed(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    run = start_stepwise(save_again_s=LONG_S)
    elsewhere = tmp_path / "else where"
    elsewhere.mkdir()
    with open_listener(run) as client:
        assert "Nothing was saved elsewhere: the run hasn't reached its final state" in save_and_get_refusal(
            run, client, elsewhere
        )
        filler = fill_disk(small_disk)
        gate.permit_all_steps()
        trying = client.wait_for_warning("unsaved").message
        assert f"choose another folder: `footplate save {run.folder.run_id} --to FOLDER`" in trying
        refused = save(run, tmp_path / "missing")
        assert refused.returncode == BAD_REQUEST
        assert (
            f"not saved there. The folder {tmp_path / 'missing'} does not exist. Choose another folder."
            in refused.stderr
        )
        saved = save(run, elsewhere)
        finished = client.wait_for(RunFinished)
    place = elsewhere / run.folder.run_id
    assert saved.returncode == 0
    assert saved.stdout.strip() == finished.cause
    assert finished.outcome == "unsaved"
    assert f"The state after step 18 was saved to {place}." in finished.cause
    assert f"copy the contents of {place} to {run.folder.path} and resume the run." in finished.cause
    run.wait_for_processes_to_end()
    filler.unlink()
    job = run.job
    shutil.copytree(place, run.folder.path, dirs_exist_ok=True)
    before = run.last_n
    run.resume().completed(since=before)
    assert_same_checkpoints(run.final_checkpoints, uninterrupted(job))


@pytest.mark.long
def test_printed_command_resumes_from_other_folder(
    small_disk: Path,
    start_stepwise: StartStepwise,
    gate: Gate,
    uninterrupted: Uninterrupted,
    *,
    follow: Follow,
    tmp_path: Path,
) -> None:
    run = start_stepwise(save_again_s=LONG_S)
    filler = fill_disk(small_disk)
    gate.permit_steps(9, run, saved=False)
    with open_listener(run) as client:
        run.send(Pause())
        client.wait_for(CommandReceived)
        gate.permit_all_steps()
        client.wait_for_warning("unsaved")
        run.send(SaveElsewhere(folder=str(tmp_path)))
        cause = client.wait_for(RunFinished).cause
    run.wait_for_processes_to_end()
    filler.unlink()
    (line,) = re.findall("`(footplate train .*)`", cause)
    trained = subprocess.run(
        [*FOOTPLATE, *shlex.split(line)[1:], "--detach"], capture_output=True, text=True, check=True
    )
    new = follow(trained.stdout.strip()).completed(patience_s=120.0)
    assert_same_checkpoints(new.final_checkpoints, uninterrupted(run.job))


@pytest.mark.long
def test_pause_waits_for_save_elsewhere(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, tmp_path: Path
) -> None:
    deadline_s = 6.0
    run = start_stepwise(save_again_s=LONG_S, deadline_s=deadline_s)
    fill_disk(small_disk)
    gate.permit_steps(9, run, saved=False)
    with open_listener(run) as client:
        run.send(Pause())
        client.wait_for(CommandReceived)
        until = time.monotonic() + 1.5 * deadline_s
        gate.permit_all_steps()
        client.wait_for_warning("unsaved")
        while time.monotonic() < until:
            assert "does not exist" in save_and_get_refusal(run, client, tmp_path / "missing")
        run.send(SaveElsewhere(folder=str(tmp_path)))
        assert f"was saved to {tmp_path / run.folder.run_id}." in client.wait_for(RunFinished).cause
    run.wait_for_processes_to_end()


def test_failed_save_elsewhere_leaves_folder_unchanged(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, tmp_path: Path
) -> None:
    run = start_stepwise(save_again_s=LONG_S)
    file, tiny, taken = tmp_path / "file", tmp_path / "tiny", tmp_path / "taken"
    file.touch()
    (taken / run.folder.run_id).mkdir(parents=True)
    tiny.mkdir()
    mount("-t", "tmpfs", "-o", "size=64k", "footplate-test", str(tiny))
    try:
        with open_listener(run) as client:
            fill_disk(small_disk)
            gate.permit_all_steps()
            client.wait_for_warning("unsaved")
            assert f"{file} is not a folder." in save_and_get_refusal(run, client, file)
            assert "The folder else does not exist." in save_and_get_refusal(run, client, "else")
            assert "/proc/self is not writable." in save_and_get_refusal(run, client, "/proc/self")
            assert f"{taken} already contains {run.folder.run_id}" in save_and_get_refusal(run, client, taken)
            assert "MiB free, and the state needs" in save_and_get_refusal(run, client, tiny)
            assert "can't be read: File name too long." in save_and_get_refusal(run, client, f"/{'x' * 4000}")
            run.send(Stop())
            assert "wasn't saved; last.pt contains step 4." in client.wait_for(RunFinished).cause
        run.wait_for_processes_to_end()
        assert not any(tiny.iterdir())
        assert not any((taken / run.folder.run_id).iterdir())
    finally:
        unmount(tiny)


@pytest.mark.qt_log_ignore(OFFSCREEN_NOISE)
def test_window_offers_other_folder_while_state_is_unsaved(
    small_disk: Path, start_stepwise: StartStepwise, gate: Gate, *, styled: QApplication, qtbot: QtBot, tmp_path: Path
) -> None:
    run = start_stepwise(save_again_s=LONG_S)
    store = RunSession()
    page = RunPage(store)
    qtbot.addWidget(page)
    page.show()
    offer = page.header.save_elsewhere
    store.open(run.folder)
    qtbot.waitUntil(lambda: store.status.label == "Running" and not store.loading)
    assert not offer.isVisible()
    fill_disk(small_disk)
    gate.permit_all_steps()
    qtbot.waitUntil(offer.isVisible)
    assert store.status.text == "Running · epoch 3 of 3, retrying to save the last state"
    offer.click()
    dialog = page.findChild(QFileDialog)
    assert dialog is not None
    with qtbot.waitSignal(store.finished) as ended:
        dialog.fileSelected.emit(str(tmp_path))
    dialog.close()
    assert ended.args == ["unsaved"]
    place = tmp_path / run.folder.run_id
    assert store.status.text.startswith("Unsaved: ")
    assert f"The state after step 18 was saved to {place}." in store.status.text
    assert not offer.isVisible()
    assert (place / "checkpoints" / "last.pt").is_file()
    store.close()
    run.wait_for_processes_to_end()
