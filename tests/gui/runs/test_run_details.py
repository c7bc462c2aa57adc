"""Details of the selected run, and the notes that the user writes about it."""

from __future__ import annotations

import errno
import shutil
import time
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, QRect
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.events import CheckpointSaved
from engine.runs.notes import change_notes, read_notes
from gui.runs import details
from gui.runs.details import DetailFields
from gui.runs.page import RunsPage
from gui.sources.background import Background
from gui.widgets.column_model import select_row
from tests.gui.runs.conftest import Refresh, facts, find_fact, select_runs
from tests.gui.sources.written_runs import write, write_run
from tests.support.widgets import HoldCalls


def wait(page: RunsPage, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: "On disk" in facts(page))


def test_details_show_changed_fields_and_checkpoints(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(
        8,
        learning_rate=0.5,
        pretrained=True,
        devices=("cpu", "cpu"),
        strategy="ddp",
        clip_norm=1.0,
        model="resnet50",
        split_points=("layer2", "layer3"),
        pipeline_schedule="1f1b",
        options={"heat": 0.25},
        decay_norms=False,
    )
    saved = [
        CheckpointSaved(
            time=time.time(), kind="last", path="checkpoints/last.pt", epoch=epoch, step=2 * epoch, bytes=1, seconds=0.1
        )
        for epoch in (5, 6)
    ]
    write(run.events_file, saved, first_n=1000)
    (run.checkpoints / "last.pt").write_bytes(b"x" * (3 << 20))
    (run.checkpoints / "best.pt").write_bytes(b"x" * 2048)
    (run.checkpoints / ".best.pt.part").write_bytes(b"x" * 10)
    refresh()
    select_runs(page, run)
    wait(page, qtbot)
    assert facts(page)["Changed settings"] == {
        "Dataset folder": "/data/flowers",
        "Model": "ResNet-50",
        "Split points": "layer2, layer3",
        "Pipeline schedule": "1F1B",
        "Strategy": "DistributedDataParallel",
        "Devices": "2 CPU workers",
        "Epochs": "4",
        "Learning rate": "0.5",
        "Clip gradients": "1",
        "Pretrained weights": "yes",
        "Decay norms and biases": "no",
        "heat": "0.25",
    }
    checkpoints = facts(page)["Checkpoints"]
    assert checkpoints.keys() == {"last.pt", "best.pt"}
    assert checkpoints["last.pt"].startswith("epoch 6, step 12 · ")
    assert checkpoints["last.pt"].endswith(" · 3.0 MiB")
    assert checkpoints["best.pt"].startswith("epoch 4, step 8 · ")
    assert checkpoints["best.pt"].endswith(" · 2.0 KiB")
    assert facts(page)["On disk"] == {"Folder": "3.0 MiB"}
    tree = page.details.facts
    epochs = find_fact(page, "Epochs")
    assert (epochs.toolTip(1), epochs.parent().font(0).bold()) == ("4", True)
    tree.setCurrentItem(epochs)
    scroll_bar = tree.verticalScrollBar()
    scroll_bar.setValue(scroll_bar.maximum())
    position = scroll_bar.value()
    (run.path / "more").write_bytes(b"x" * (2 << 20))
    change_notes(run.path, favorite=True)
    refresh()
    qtbot.waitUntil(lambda: facts(page).get("On disk") == {"Folder": "5.0 MiB"})
    assert tree.currentItem().text(0) == "Epochs"
    assert scroll_bar.value() == position > 0


def test_details_report_missing_checkpoint_and_folder(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    runs = [write_run(8), write_run(8)]
    refresh()
    select_runs(page, runs[0])
    wait(page, qtbot)
    assert facts(page)["On disk"]["Checkpoints"] == "none yet"
    shutil.rmtree(runs[1].path)
    select_runs(page, runs[1])
    assert facts(page) == {}
    qtbot.waitUntil(lambda: "job.toml" in facts(page).get("Changed settings", {}))


def test_details_save_notes_when_typing_pauses(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    run = write_run(8)
    refresh()
    select_runs(page, run)
    qtbot.keyClicks(page.details.notes, "0.1 was too much")
    with qtbot.waitSignal(page.notes_writer.written):
        qtbot.keyClicks(page.details.tags, "paper, v2,")
    assert read_notes(run.path).text == "0.1 was too much"
    assert read_notes(run.path).tags == ("paper", "v2")
    assert page.details.tags.text() == "paper, v2,"  # typed text isn't replaced
    with qtbot.waitSignal(page.notes_writer.written):
        qtbot.keyClicks(page.details.tags, "v3")
        page.details.save()
    assert read_notes(run.path).tags == ("paper", "v2", "v3")
    with qtbot.assertNotEmitted(page.details.noted):
        page.details.notes.setPlainText("0.1 was too much ")
        page.details.save()


def test_details_save_notes_on_selection_and_close(page: RunsPage, refresh: Refresh, qtbot: QtBot) -> None:
    first, second = write_run(8), write_run(8)
    change_notes(second.path, text="of the second " + "x" * 2000, tags=("paper", "v2"))
    refresh()
    select_runs(page, first)
    page.details.notes.setPlainText("of the first")
    with qtbot.waitSignal(page.notes_writer.written):
        select_row(page.table, page.model.position(second.run_id))  # in one step, as a click does
    assert read_notes(first.path).text == "of the first"
    assert page.details.notes.toPlainText() == "of the second " + "x" * 2000
    assert page.details.tags.text() == "paper, v2"
    assert page.details.notes.wordWrapMode() == QTextOption.WrapMode.WrapAnywhere
    change_notes(first.path, text="of the first, " + "x" * 1000)
    refresh()
    select_runs(page, first)
    assert page.details.notes.wordWrapMode() == QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere
    select_runs(page, second)
    page.details.notes.setPlainText("of the second, changed")
    written: list[str] = []
    page.notes_writer.written.connect(lambda run: written.append(run.notes))
    page.close_work()
    assert written == ["of the second, changed"]
    assert read_notes(first.path).text.startswith("of the first, ")
    assert read_notes(second.path).text == "of the second, changed"


def test_details_keep_typed_notes_on_refresh(page: RunsPage, refresh: Refresh) -> None:
    run = write_run(8)
    refresh()
    select_runs(page, run)
    page.details.notes.setPlainText("half a senten")
    page.details.tags.setText("pap")
    change_notes(run.path, text="from elsewhere", tags=("v2",), favorite=True)
    refresh()
    assert (page.details.notes.toPlainText(), page.details.tags.text()) == ("half a senten", "pap")
    assert page.selected()[0].favorite


@pytest.mark.parametrize("is_readable", [True, False])
def test_details_ignore_late_facts_of_another_run(
    page: RunsPage,
    refresh: Refresh,
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
    hold_calls: HoldCalls,
    *,
    is_readable: bool,
) -> None:
    first, second = write_run(8, batch_size=2), write_run(8, batch_size=3)
    change_notes(second.path, text="0")
    read, unreadable = details.read_details, set() if is_readable else {first.path}

    def read_or_fail(folder: Path) -> DetailFields:
        if folder in unreadable:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return read(folder)

    monkeypatch.setattr(details, "read_details", read_or_fail)
    release = hold_calls(details, "read_details", lambda folder: folder == first.path)
    refresh()
    select_runs(page, first)
    select_runs(page, second)
    wait(page, qtbot)
    release.set()
    qtbot.waitUntil(lambda: not page.details.findChildren(Background))
    assert facts(page)["Changed settings"]["Batch size"] == "3"
    if not is_readable:
        select_runs(page, first)
        qtbot.waitUntil(lambda: "Permission denied" in facts(page).get("On disk", {}).get("The run's folder", ""))
        assert page.details.facts.topLevelItem(0).isExpanded()
        select_runs(page, second)
        wait(page, qtbot)
        for text, section in (("1", "On disk"), ("2", "Changed settings")):
            unreadable ^= {second.path}
            change_notes(second.path, text=text)
            refresh()
            qtbot.waitUntil(lambda section=section: next(iter(facts(page))) == section)


def test_details_place_notes_by_the_width_of_the_page(page: RunsPage, refresh: Refresh) -> None:
    run = write_run(8)
    refresh()
    select_runs(page, run)
    for width, is_wide in ((1000, False), (1500, True)):
        page.resize(width, 900)
        QApplication.processEvents()
        halves = [QRect(w.mapTo(page, QPoint(0, 0)), w.size()) for w in (page.details.facts, page.details.notes)]
        assert (halves[0].bottom() < halves[1].top()) == is_wide
        assert (halves[0].right() < halves[1].left()) != is_wide


def test_details_show_hint_without_single_run(page: RunsPage, refresh: Refresh) -> None:
    runs = [write_run(8), write_run(8)]
    refresh()
    hint = page.details.hint.text()
    assert page.details.hint.isVisible()
    select_runs(page, *runs)
    assert page.details.hint.text().startswith("2 runs")
    page.table.clearSelection()
    assert (page.details.hint.isVisible(), page.details.hint.text()) == (True, hint)
    assert "0" not in hint
