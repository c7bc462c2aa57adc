"""Pausing, resuming, training further and forking: what is offered for which run, and what is asked for then."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QToolButton
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved, Waiting
from engine.runs.folder import RunFolder, RunSummary, SupervisorFile, create_run, process_start
from engine.runs.notes import change_notes
from engine.runs.queue import QueueSlot
from gui.runs.model import STATE
from gui.runs.page import RunsPage
from gui.sources.active_runs import device_queues
from gui.sources.checkpoints import checkpoints_of
from gui.sources.prefill import Prefill
from gui.sources.resume_fork import CannotPrefill, to_fork, to_resume
from tests.gui.runs.conftest import Refresh, column, select
from tests.gui.sources.written_runs import a_run, job, write

OLDER = "epoch-2-step-4.pt"


def with_checkpoints(run: RunFolder, *names: str) -> RunFolder:
    for name in names or (OLDER, "best.pt", "last.pt"):
        (run.checkpoints / name).write_bytes(b"weights")
    return run


def alive(run: RunFolder) -> RunFolder:
    """A run whose supervisor lives, for all that its files tell."""
    me = os.getpid()
    run.write_supervisor(SupervisorFile(pid=me, start_time=process_start(me), endpoint="unix:/nowhere"))
    return run


def summary(run: RunFolder) -> RunSummary:
    found = run.summary()
    assert found is not None
    return found


def offered(page: RunsPage) -> list[str]:
    """What the buttons below the chosen run's state say."""
    buttons = page.details.findChildren(QPushButton)
    return [button.text().replace("&", "") for button in buttons if button.isVisible()]


def fork_button(page: RunsPage, checkpoint: str) -> QToolButton:
    buttons = page.details.facts.findChildren(QToolButton)
    return next(button for button in buttons if button.accessibleName() == f"Fork from {checkpoint}")


@pytest.mark.parametrize(
    ("outcome", "buttons"),
    [
        ("paused", ["Resume", "Resume with changes …", "Fork …"]),
        ("stopped", ["Resume", "Resume with changes …", "Fork …"]),
        ("failed", ["Resume", "Resume with changes …", "Fork …"]),
        (None, ["Resume", "Resume with changes …", "Fork …"]),
        ("completed", ["Train further …", "Fork …"]),
    ],
)
def test_that_a_run_that_has_ended_offers_what_can_be_done_with_it(
    page: RunsPage, refresh: Refresh, outcome: str | None, buttons: list[str]
) -> None:
    run = a_run(8, outcome)  # type: ignore[arg-type]
    os.utime(run.job_file, (0, 0))
    refresh()
    select(page, run)
    assert offered(page) == buttons
    assert page.acts.delete.isEnabled()
    menu = page.acts.menu(page.selected(), [])
    usable = {action.text().replace("&", "") for action in menu.actions() if action.isEnabled()}
    menu.close()
    assert set(buttons) <= usable
    assert "Pause" not in usable


def test_that_a_running_run_offers_pause_and_a_waiting_one_does_not(page: RunsPage, refresh: Refresh) -> None:
    running, waiting = alive(a_run(8, None)), alive(a_run(8, None))
    last = waiting.last_event()
    assert last is not None
    write(waiting.events_file, [Waiting(time=last.time, position=1, behind=(running.run_id,))], last.n + 1)
    refresh()
    select(page, running)
    assert offered(page) == ["Pause", "Fork …"]
    select(page, waiting)
    assert offered(page) == ["Fork …"]
    assert not page.acts.delete.isEnabled()
    assert set(column(page, "State")) == {"Running", "Waiting"}
    assert "Waiting until its devices are free" in page.details._state.text()
    page.filters.state.setCurrentText("Waiting (1)")
    assert column(page, "State") == ["Waiting"]


@pytest.mark.parametrize("state", ["paused", "waiting"])
def test_that_every_state_has_an_icon_of_its_own(page: RunsPage, refresh: Refresh, state: str) -> None:
    run = a_run(8, "paused" if state == "paused" else None)
    if state == "waiting":
        last = run.last_event()
        assert last is not None
        write(alive(run).events_file, [Waiting(time=last.time, position=1)], last.n + 1)
    refresh()
    cell = page.model.index(0, STATE)
    assert cell.data() == state.capitalize()
    assert not cell.data(Qt.ItemDataRole.DecorationRole).isNull()


def test_that_keys_resume_and_pause_nothing_where_that_cannot_be(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    control, shift = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier
    paused, completed = a_run(8, "paused"), a_run(8)
    refresh()
    select(page, paused)
    with qtbot.waitSignal(page.resume_wanted) as wanted:
        qtbot.keyClick(page.table, Qt.Key.Key_R, control)
    assert wanted.args[0].path == paused.path
    select(page, completed)
    with qtbot.assertNotEmitted(page.resume_wanted):
        qtbot.keyClick(page.table, Qt.Key.Key_R, control)
        qtbot.keyClick(page.table, Qt.Key.Key_P, control | shift)
    assert "train it further" in page.acts.resume.toolTip()
    with qtbot.waitSignal(page.prefill_requested) as asked:
        qtbot.keyClick(page.table, Qt.Key.Key_R, control | shift)
    assert asked.args[0].action == "Train further"


def test_that_a_pause_that_nobody_hears_is_told(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = alive(a_run(8, None))
    refresh()
    select(page, run)
    with qtbot.waitSignal(page.message) as told:
        page.acts.pause.trigger()
    assert "Could not pause" in told.args[0]


def test_that_a_run_goes_on_with_changes_from_where_it_stands() -> None:
    run = with_checkpoints(a_run(8, "paused", learning_rate=0.5, name="before"))
    change_notes(run.path, name="night shift")
    prefill = to_resume(summary(run))
    assert prefill.run is not None
    assert prefill.run.path == run.path
    assert prefill.job == job(learning_rate=0.5, name="night shift")
    assert prefill.checkpoint == str(run.checkpoints / "last.pt")
    assert "“night shift” from epoch 4, step 8 (last.pt, " in prefill.text
    assert (prefill.action, prefill.preset) == ("Resume", {})


def test_that_a_completed_run_is_offered_more_epochs() -> None:
    prefill = to_resume(summary(with_checkpoints(a_run(8))))
    assert (prefill.action, prefill.preset, prefill.focus) == ("Train further", {"epochs": 9}, "epochs")
    assert "schedule now spans all epochs" in prefill.text


def test_that_a_run_without_a_checkpoint_says_that_it_begins_again() -> None:
    prefill = to_resume(summary(a_run(8, "failed")))
    assert prefill.checkpoint == ""
    assert "from the beginning, since it has no checkpoint" in prefill.text


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        (None, {"resume_from": "last.pt"}, "continues from a checkpoint of “night shift” (last.pt, epoch 4, step 8)"),
        (OLDER, {"resume_from": OLDER}, f"({OLDER}, epoch 2, step 4)"),
        ("best.pt", {"weights_file": "best.pt"}, "with the best weights of “night shift” (best.pt, epoch 4,"),
    ],
)
def test_that_a_fork_begins_with_a_checkpoint_and_the_best_one_gives_its_weights(
    name: str | None, fields: dict[str, str], text: str
) -> None:
    run = with_checkpoints(a_run(8, "paused", name="night shift", seed=3))
    prefill = to_fork(summary(run), run.checkpoints / name if name else None)
    paths = {field: str(run.checkpoints / file) for field, file in fields.items()}
    assert prefill.job == job(name="night shift fork", seed=3, **paths)
    assert prefill.run is None
    assert prefill.action == "Train"
    assert text in prefill.text


def test_that_a_fork_of_what_is_complete_has_something_left_to_train() -> None:
    run = with_checkpoints(a_run(8))
    assert to_fork(summary(run)).preset == {"epochs": 9}
    assert to_fork(summary(run), run.checkpoints / OLDER).preset == {}
    assert to_fork(summary(run), run.checkpoints / "best.pt").preset == {}


def test_that_a_run_that_cannot_be_forked_says_why(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = a_run(8, "paused", name="early")
    refresh()
    select(page, run)
    with qtbot.waitSignal(page.message) as told:
        page.acts.fork.trigger()
    assert told.args[0] == "“early” can't be forked: it has no checkpoint yet."
    with pytest.raises(CannotPrefill, match=r"its best\.pt is gone"):
        to_fork(summary(run), run.checkpoints / "best.pt")
    run.job_file.write_text("no = [ job")
    with qtbot.waitSignal(page.message) as told:
        page.acts.change.trigger()
    assert "can't be read" in told.args[0]


def test_that_each_checkpoint_has_a_button_that_forks_from_it(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = with_checkpoints(a_run(8))
    refresh()
    select(page, run)
    qtbot.waitUntil(lambda: page.details.facts.topLevelItemCount() > 0)
    with qtbot.waitSignal(page.prefill_requested) as asked:
        fork_button(page, "best.pt").click()
    assert asked.args[0].job.model.weights_file == str(run.checkpoints / "best.pt")
    tree = page.details.facts
    (item,) = tree.findItems(OLDER, Qt.MatchFlag.MatchExactly | Qt.MatchFlag.MatchRecursive)
    tree.setFocus()
    tree.setCurrentItem(item)
    with qtbot.waitSignal(page.prefill_requested) as asked:
        qtbot.keyClick(tree, Qt.Key.Key_Return)
    prefill: Prefill = asked.args[0]
    assert prefill.job.checkpoints.resume_from == str(run.checkpoints / OLDER)


def test_that_a_run_that_keeps_all_its_checkpoints_shows_the_newest(
    page: RunsPage, refresh: Refresh, qtbot: QtBot
) -> None:
    run = with_checkpoints(a_run(8), *(f"epoch-1-step-{step}.pt" for step in range(1, 31)), "last.pt")
    for step in range(1, 31):
        os.utime(run.checkpoints / f"epoch-1-step-{step}.pt", (step, step))
    refresh()
    select(page, run)
    qtbot.waitUntil(lambda: page.details.facts.topLevelItemCount() > 0)
    top = page.details.facts.topLevelItem(0)
    names = [top.child(number).text(0) for number in range(top.childCount())]
    assert names[:2] == ["last.pt", "epoch-1-step-30.pt"]
    assert len(names) == 21
    assert top.child(20).text(1) == "11 older ones are in the run's folder"


def test_that_a_checkpoints_place_is_the_newest_that_the_log_tells(tmp_path: Path) -> None:
    run = with_checkpoints(a_run(8, "paused"))
    last = run.last_event()
    assert last is not None
    told = CheckpointSaved(kind="last", path="checkpoints/last.pt", epoch=7, step=1234, bytes=1, seconds=0.1)
    write(run.events_file, [told], last.n + 1)
    with run.events_file.open("ab") as log:
        log.write(b'{"type":"checkpoint","kind":"best","epo')  # torn
    places = {each.name: each.location for each in checkpoints_of(run)}
    assert places == {"last.pt": "epoch 7, step 1,234", "best.pt": "epoch 4, step 8", OLDER: "epoch 2, step 4"}
    run.events_file.unlink()
    assert {each.location for each in checkpoints_of(run)} == {"", "epoch 2, step 4"}
    assert checkpoints_of(RunFolder(tmp_path)) == ()


def test_that_a_run_that_is_starting_can_only_be_forked(page: RunsPage, refresh: Refresh) -> None:
    run = create_run(job())
    refresh()
    select(page, run)
    assert offered(page) == ["Fork …"]


def test_that_those_ahead_of_a_new_run_are_who_has_the_device_and_who_waits_for_it() -> None:
    runs = [a_run(8, None, name="first"), a_run(8, None), a_run(8, None, name="beside", start="at_once")]
    slots = [QueueSlot(run, run.job() or job()) for run in runs]
    try:
        for slot in slots:
            slot.poll()
        assert [slot.has_devices for slot in slots] == [True, False, True]
        assert device_queues() == {"cpu": ("first", "beside", f"flowers · {runs[1].run_id[-4:]}")}
    finally:
        for slot in slots:
            slot.close()
    assert device_queues() == {}
