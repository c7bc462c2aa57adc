"""Pausing, resuming, extending and forking runs from the Runs page."""

from __future__ import annotations

import os
import shutil
import time
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QToolButton
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved, RunFinished, Waiting
from engine.contract.protocol import Command, Pause, Stop
from engine.runs.folder import RunFolder, UnreadableJob, create_run
from engine.runs.notes import change_notes
from engine.runs.queue import QueueSlot
from engine.system import paths
from gui.format import format_time_or_date
from gui.runs.page import RunsPage
from gui.sources.active_runs import QueuedRun, read_device_queues, request_pause, request_stop
from gui.sources.checkpoints import Checkpoint, checkpoints_of, choose_fork_checkpoint
from gui.sources.resume_fork import CannotPrefill, Prefill, prefill_to_fork, prefill_to_resume, prefill_with_changes
from gui.sources.run_queue import read_queue_positions
from tests.gui.runs.conftest import Refresh, facts, find_fact, read_column, select_runs
from tests.gui.sources.written_runs import append_events, job, supervise_here, write_run

OLDER = "epoch-2-step-4.pt"


def add_checkpoints(run: RunFolder, *names: str) -> RunFolder:
    for name in names or (OLDER, "best.pt", "last.pt"):
        (run.checkpoints / name).write_bytes(b"weights")
    return run


def read_buttons(page: RunsPage) -> list[str]:
    """Return the texts of the visible buttons in the details of the selected run."""
    buttons = page.details.findChildren(QPushButton)
    return [button.text().replace("&", "") for button in buttons if button.isVisible()]


def fork_button(page: RunsPage, checkpoint: str) -> QToolButton:
    buttons = page.details.facts.findChildren(QToolButton)
    return next(button for button in buttons if button.accessibleName() == f"Fork from {checkpoint}")


@pytest.mark.parametrize(
    ("outcome", "buttons"),
    [
        ("paused", ["Resume", "Resume with changes…", "Fork…"]),
        ("stopped", ["Resume", "Resume with changes…", "Fork…"]),
        ("failed", ["Resume", "Resume with changes…", "Fork…"]),
        (None, ["Resume", "Resume with changes…", "Fork…"]),
        ("completed", ["Train further…", "Fork…"]),
    ],
)
def test_details_offer_actions_of_ended_run(
    page: RunsPage, refresh: Refresh, outcome: str | None, buttons: list[str]
) -> None:
    run = add_checkpoints(write_run(8, outcome))  # type: ignore[arg-type]
    os.utime(run.job_file, (0, 0))
    refresh()
    select_runs(page, run)
    assert read_buttons(page) == buttons
    assert page.acts.delete.isEnabled()
    menu = page.acts.create_menu(page.selected(), [])
    usable = {action.text().replace("&", "") for action in menu.actions() if action.isEnabled()}
    menu.close()
    assert set(buttons) <= usable
    assert "Pause" not in usable


def test_run_without_checkpoint_is_trained_again(page: RunsPage, refresh: Refresh) -> None:
    forked = write_run(8, "failed", resume_from="/runs/other/last.pt")
    alone, weights = write_run(8, "failed"), add_checkpoints(write_run(8, "stopped"), "best.pt")
    refresh()
    for run, is_resumable in ((alone, False), (weights, False), (forked, True)):
        select_runs(page, run)
        assert read_buttons(page)[0] == ("Resume" if is_resumable else "Train again")
        assert read_buttons(page)[1] == ("Resume with changes…" if is_resumable else "Train again with changes…")


def test_details_offer_pause_only_while_running(page: RunsPage, refresh: Refresh) -> None:
    running, waiting = supervise_here(write_run(8, None)), supervise_here(write_run(8, None))
    append_events(waiting, Waiting(time=time.time(), position=1, behind=(running.run_id,)))
    refresh()
    select_runs(page, running)
    assert read_buttons(page) == ["Pause", "Fork…"]
    select_runs(page, waiting)
    assert read_buttons(page) == ["Fork…"]
    assert not page.acts.delete.isEnabled()
    assert set(read_column(page, "State")) == {"Running", "Waiting"}
    page.filters.state.setCurrentText("Waiting (1)")
    assert read_column(page, "State") == ["Waiting"]


def test_resume_keys_follow_state(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    control, shift = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
    paused, completed = write_run(8, "paused"), write_run(8)
    refresh()
    select_runs(page, paused)
    with qtbot.waitSignal(page.resume_requested) as requested:
        qtbot.keyClick(page.table, Qt.Key.Key_R, control)
    assert requested.args[0].path == paused.path
    select_runs(page, completed)
    with qtbot.assertNotEmitted(page.resume_requested):
        qtbot.keyClick(page.table, Qt.Key.Key_R, control)
        qtbot.keyClick(page.table, Qt.Key.Key_P, control | shift)
    with qtbot.waitSignal(page.prefill_requested) as requested:
        qtbot.keyClick(page.table, Qt.Key.Key_R, control | shift)
    assert requested.args[0].action == "Train further"


def test_pause_reports_unreachable_supervisor(
    page: RunsPage, refresh: Refresh, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = supervise_here(write_run(8, None))
    refresh()
    select_runs(page, run)
    with qtbot.waitSignal(page.message) as message:
        page.acts.pause.trigger()
    assert run.run_id in message.args[0]
    monkeypatch.setattr("gui.runs.page.request_pause", lambda _run_id: run)
    with qtbot.waitSignal(page.run_list.complete):
        page.acts.pause.trigger()


def test_to_resume_continues_from_last_checkpoint() -> None:
    run = add_checkpoints(write_run(8, "paused", learning_rate=0.5, name="before"))
    change_notes(run.path, name="night shift")
    prefill = prefill_to_resume(run.summary())
    assert prefill.run.path == run.path
    assert prefill.job == job(learning_rate=0.5, name="night shift")
    assert prefill.checkpoint == str(run.checkpoints / "last.pt")
    written = format_time_or_date((run.checkpoints / "last.pt").stat().st_mtime)
    assert f"“night shift” from epoch 4, step 8 (last.pt, {written})." in prefill.text
    assert (prefill.action, prefill.preset) == ("Resume", {})


def test_to_resume_completed_run_adds_epochs() -> None:
    prefill = prefill_to_resume(add_checkpoints(write_run(8)).summary())
    assert (prefill.action, prefill.preset, prefill.focus) == ("Train further", {"epochs": 9}, "epochs")
    assert "schedule" in prefill.text
    assert "schedule" not in prefill_to_resume(add_checkpoints(write_run(8, schedule="none")).summary()).text


def test_to_resume_without_checkpoint_is_new_run() -> None:
    prefill = prefill_to_resume(write_run(8, "failed").summary())
    assert (prefill.run, prefill.action, prefill.job) == (None, "Train", job())
    prefill = prefill_to_resume(write_run(8).summary())
    assert "from the beginning, since it has no checkpoint" in prefill.text
    fork = write_run(8, "failed", resume_from="/runs/other/last.pt")
    (fork.checkpoints / "best.pt").write_bytes(b"weights")
    assert " from /runs/other/last.pt. " in prefill_to_resume(fork.summary()).text
    add_checkpoints(fork).events_file.unlink()
    assert " from a checkpoint (last.pt, " in prefill_to_resume(fork.summary()).text


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        (None, {"resume_from": "last.pt"}, "continues from a checkpoint of “night shift” (last.pt, epoch 4, step 8)"),
        (OLDER, {"resume_from": OLDER}, f"({OLDER}, epoch 2, step 4)"),
        ("best.pt", {"weights_file": "best.pt"}, "with the best weights of “night shift” (best.pt, epoch 4,"),
    ],
)
def test_to_fork_uses_checkpoint(name: str | None, fields: dict[str, str], text: str) -> None:
    run = add_checkpoints(write_run(8, "paused", name="night shift", seed=3, resume_from="/runs/earlier/last.pt"))
    prefill = prefill_to_fork(run.summary(), run.checkpoints / name if name else None)
    paths = {"resume_from": ""} | {field: str(run.checkpoints / file) for field, file in fields.items()}
    assert prefill.job == job(name="night shift fork", seed=3, **paths)
    assert prefill.run is None
    assert (prefill.action, prefill.preset) == ("Train", {})
    assert text in prefill.text


def test_to_fork_shortens_a_long_name() -> None:
    run = add_checkpoints(write_run(8, "paused", name="n" * 118))
    assert prefill_to_fork(run.summary()).job.name == "n" * 115 + " fork"


@pytest.mark.parametrize(("recipe", "changed"), [("fine-tune", {"recipe": "from-scratch"}), ("timm-a1", {})])
def test_changes_of_a_new_run_change_the_default_recipe(recipe: str, changed: dict[str, str]) -> None:
    run = write_run(8, model="resnet18", pretrained=True, recipe=recipe)
    prefill = prefill_with_changes(run.summary(), {"pretrained": False}, continues_run=False)
    assert (prefill.run, prefill.preset, prefill.focus) == (None, changed | {"pretrained": False}, "pretrained")
    assert prefill.job == run.job()
    prefill = prefill_with_changes(run.summary(), {"epochs": 3, "seed": 8}, continues_run=False)
    assert (prefill.preset, prefill.focus) == ({"epochs": 3, "seed": 8}, "epochs")
    assert prefill.text.endswith("”, but with epochs 3, seed 8.")
    resumed = prefill_with_changes(add_checkpoints(run).summary(), {"epochs": 12}, continues_run=True)
    assert resumed.run is not None
    assert (resumed.run.path, resumed.preset, resumed.focus) == (run.path, {"epochs": 12}, "epochs")


def test_to_fork_completed_run_adds_epochs() -> None:
    run = add_checkpoints(write_run(8))
    assert prefill_to_fork(run.summary()).preset == {"epochs": 9}
    assert prefill_to_fork(run.summary(), run.checkpoints / OLDER).preset == {}
    assert prefill_to_fork(run.summary(), run.checkpoints / "best.pt").preset == {}


def test_fork_reports_missing_checkpoint_and_job(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(8, "paused", name="early")
    refresh()
    select_runs(page, run)
    for fork in (page.acts.fork.trigger, partial(page.fork, run)):
        with qtbot.waitSignal(page.message) as message:
            fork()
        assert "“early”" in message.args[0]
    with pytest.raises(CannotPrefill, match=r"best\.pt"):
        prefill_to_fork(run.summary(), run.checkpoints / "best.pt")
    run.job_file.write_text("no = [ job")
    with qtbot.waitSignal(page.message) as message:
        page.acts.change.trigger()
    assert "“early”" in message.args[0]
    assert str(run.job_file) in message.args[0]


def test_details_fork_from_checkpoint(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = add_checkpoints(write_run(8))
    refresh()
    select_runs(page, run)
    qtbot.waitUntil(lambda: page.details.facts.topLevelItemCount() > 0)
    for name, tip in (("best.pt", "these weights only"), ("last.pt", "continues from here")):
        assert fork_button(page, name).toolTip().endswith(tip)
        assert find_fact(page, name).toolTip(0).endswith(f"{tip} (Enter)")
    with qtbot.waitSignal(page.prefill_requested) as requested:
        fork_button(page, "best.pt").click()
    assert requested.args[0].job.model.weights_file == str(run.checkpoints / "best.pt")
    tree = page.details.facts
    tree.setFocus()
    tree.setCurrentItem(find_fact(page, OLDER))
    with qtbot.waitSignal(page.prefill_requested) as requested:
        qtbot.keyClick(tree, Qt.Key.Key_Return)
    prefill: Prefill = requested.args[0]
    assert prefill.job.checkpoints.resume_from == str(run.checkpoints / OLDER)


def test_details_list_newest_checkpoints(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = add_checkpoints(write_run(8), *(f"epoch-1-step-{step}.pt" for step in range(1, 31)), "last.pt")
    for step in range(1, 31):
        os.utime(run.checkpoints / f"epoch-1-step-{step}.pt", (step, step))
    refresh()
    select_runs(page, run)
    qtbot.waitUntil(lambda: len(facts(page).get("Checkpoints", ())) == 21)
    assert list(facts(page)["Checkpoints"])[:2] == ["last.pt", "epoch-1-step-30.pt"]
    assert list(facts(page)["Checkpoints"].values())[20].startswith("11 ")
    for step in range(1, 12):
        (run.checkpoints / f"epoch-1-step-{step}.pt").unlink()
    change_notes(run.path, favorite=True)
    refresh()
    qtbot.waitUntil(lambda: len(facts(page).get("Checkpoints", ())) == 20)


def test_checkpoints_have_latest_logged_position(tmp_path: Path) -> None:
    run = add_checkpoints(write_run(8, "paused"))
    for epoch in (6, 7):
        saved = CheckpointSaved(kind="last", path="checkpoints/last.pt", epoch=epoch, step=1234, bytes=1, seconds=0.1)
        append_events(run, saved)
    with run.events_file.open("ab") as log:
        log.write(b'{"type":"checkpoint","kind":"best","epo')  # an incomplete line
    positions = {each.name: each.position_text for each in checkpoints_of(run)}
    assert positions == {"last.pt": "epoch 7, step 1,234", "best.pt": "epoch 4, step 8", OLDER: "epoch 2, step 4"}
    run.events_file.unlink()
    assert {each.position_text for each in checkpoints_of(run)} == {"", "epoch 2, step 4"}
    assert checkpoints_of(RunFolder(tmp_path)) == ()


@pytest.mark.parametrize(
    ("newest_first", "chosen"),
    [
        (("best.pt", OLDER, "last.pt"), "last.pt"),
        (("best.pt", OLDER, "epoch-1-step-2.pt"), OLDER),
        (("best.pt",), "best.pt"),
        ((), None),
    ],
)
def test_fork_prefers_last_then_newest_resumable(newest_first: tuple[str, ...], chosen: str | None) -> None:
    found = choose_fork_checkpoint(tuple(Checkpoint(Path(name), 1, 0.0) for name in newest_first))
    assert (found and found.name) == chosen


def test_requests_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[Path, Command]] = []
    monkeypatch.setattr("engine.runs.slurm.send", lambda run, command: sent.append((run.path, command)))
    run = write_run(8, None)
    assert [request(run.run_id).path for request in (request_pause, request_stop)] == [run.path] * 2
    assert sent == [(run.path, Pause()), (run.path, Stop())]
    with pytest.raises(LookupError, match="no longer in the list"):
        request_stop("run-gone")


def test_details_offer_only_fork_while_starting(page: RunsPage, refresh: Refresh) -> None:
    run = create_run(job())
    refresh()
    select_runs(page, run)
    assert read_buttons(page) == ["Fork…"]


def test_device_queues_are_holders_and_queued_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.runs.estimates.estimate_remaining_s", lambda _run: 60.0)
    twice = {"strategy": "ddp", "devices": ("cpu", "cpu")}
    runs = [
        write_run(8, None, name="first", **twice),
        write_run(8, None, **twice),
        write_run(8, None, name="shared", start="at_once"),
    ]
    runs += [write_run(8, None, name="same title") for _ in range(2)]
    slots = [QueueSlot(run, run.job() or job()) for run in runs]
    try:
        for slot in slots:
            slot.poll()
        assert [slot.has_devices for slot in slots] == [True, False, True, False, False]
        titles = [run.title for run in read_device_queues()["cpu"]]
        assert [run.left_s for run in read_device_queues()["cpu"]] == [60.0, 60.0, None, None, None]
        assert titles == ["first", "shared", f"flowers · {runs[1].run_id[-4:]}", "same title", "same title"]
        for error in (UnreadableJob("damaged"), OSError("gone")):
            monkeypatch.setattr("engine.runs.estimates.estimate_remaining_s", Mock(side_effect=error))
            assert {run.left_s for run in read_device_queues()["cpu"]} == {None}
        append_events(runs[0], RunFinished(time=time.time(), outcome="completed"))
        assert read_device_queues()["cpu"][0] == QueuedRun("first", has_ended=True)
        assert read_queue_positions()[0].waits_for == "the use of “first”’s model, “shared”"
    finally:
        for slot in slots:
            slot.close()
    assert read_device_queues() == {}
    shutil.rmtree(paths.runtime_folder() / "queue")
    (paths.runtime_folder() / "queue").write_text("not a folder")
    assert read_device_queues() == {}
