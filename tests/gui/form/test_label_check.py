"""Label check before the first training run on a folder that Footplate can't recognize with certainty."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport
from engine.contract.job import Job
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from gui.form.submission import LabelCheck
from gui.sources.resume_fork import Prefill
from gui.sources.settings import Settings
from tests.gui.form.test_form import REPORT
from tests.gui.sources.written_runs import write_run
from tests.support.unclear_dataset import UNCERTAIN
from tests.support.widgets import OpenWindow, ShowWidget, suspend_style_sheet


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path / "home")


def fill(form: JobForm, folder: Path, qtbot: QtBot, report: DatasetReport = UNCERTAIN) -> JobForm:
    with qtbot.waitSignal(form.folder_chosen):
        form.set_job(
            Job.from_fields(
                dataset=str(folder), task="detection", model="fasterrcnn", encoder="resnet18", pretrained=False
            )
        )
    form.set_report(report)
    qtbot.waitUntil(form.train.isEnabled)
    return form


@pytest.fixture
def make_form(
    styled: QApplication, show_widget: ShowWidget, qtbot: QtBot, settings: Settings, images: Path
) -> Callable[[], JobForm]:
    """Return a function that creates forms for a folder whose labels are uncertain.

    All forms share the same settings.
    """

    def make() -> JobForm:
        with suspend_style_sheet(styled):
            panel = JobPanel(settings=settings)
        return fill(show_widget(panel).form, images, qtbot)

    return make


def press(form: JobForm, qtbot: QtBot) -> None:
    form.train.setFocus()
    qtbot.keyClick(form.train, Qt.Key.Key_Space)


def test_first_press_shows_labels_and_second_starts(make_form: Callable[[], JobForm], qtbot: QtBot) -> None:
    form = make_form()
    with qtbot.waitSignal(form.labels_requested), qtbot.assertNotEmitted(form.train_requested):
        press(form, qtbot)
    qtbot.waitUntil(lambda: not form.label_check.is_pausing)
    with qtbot.waitSignal(form.train_requested), qtbot.assertNotEmitted(form.labels_requested):
        press(form, qtbot)


def test_double_click_on_train_does_not_start(make_form: Callable[[], JobForm], qtbot: QtBot) -> None:
    form = make_form()
    with qtbot.assertNotEmitted(form.train_requested), qtbot.waitSignal(form.labels_requested):
        qtbot.mouseClick(form.train, Qt.MouseButton.LeftButton)
        qtbot.mouseDClick(form.train, Qt.MouseButton.LeftButton)
        qtbot.mouseRelease(form.train, Qt.MouseButton.LeftButton)


def test_label_check_holds_back_once_by_folder_and_format(settings: Settings) -> None:
    assert LabelCheck(settings).start_if_needed("/data/a", UNCERTAIN)
    later = LabelCheck(settings)
    assert not later.start_if_needed("/data/a", UNCERTAIN)
    assert later.start_if_needed("/data/b", UNCERTAIN)
    assert LabelCheck(settings).start_if_needed("/data/a", msgspec.structs.replace(UNCERTAIN, format="voc"))
    assert not LabelCheck(settings).start_if_needed("/data/b", UNCERTAIN)


def test_label_check_remembers_other_windows(settings: Settings) -> None:
    first, second = LabelCheck(settings), LabelCheck(settings)
    assert first.start_if_needed("/data/a", UNCERTAIN)
    assert second.start_if_needed("/data/b", UNCERTAIN)
    assert not LabelCheck(settings).start_if_needed("/data/a", UNCERTAIN)


def test_label_check_forgets_the_oldest_datasets(settings: Settings) -> None:
    check = LabelCheck(settings)
    for number in range(501):
        assert check.start_if_needed(f"/data/{number}", UNCERTAIN)
    assert [LabelCheck(settings).start_if_needed(f"/data/{number}", UNCERTAIN) for number in (1, 0)] == [False, True]


@pytest.mark.parametrize("text", ["", "{}", '[["/data/a"]]', "[[1, 2]]"])
def test_unreadable_memory_of_labels_counts_as_none(settings: Settings, text: str) -> None:
    settings.set("labels_seen", text)
    assert LabelCheck(settings).start_if_needed("/data/a", UNCERTAIN)


@pytest.mark.parametrize(
    "report",
    [
        None,
        DatasetReport(folder="", format=""),
        msgspec.structs.replace(UNCERTAIN, certain=True),
        msgspec.structs.replace(UNCERTAIN, examples=()),
    ],
    ids=["none", "unrecognized", "certain", "no examples"],
)
def test_other_folders_start_at_once(report: DatasetReport | None) -> None:
    assert not LabelCheck().start_if_needed("/data/a", report)


def test_resume_shows_no_labels(job_panel: JobPanel, images: Path, qtbot: QtBot) -> None:
    uncertain = msgspec.structs.replace(REPORT, certain=False, examples=UNCERTAIN.examples)
    job_panel.devices_requested.connect(job_panel.set_devices)
    job_panel.folder_chosen.connect(lambda job: job_panel.set_report(uncertain if job is not None else None))
    run = write_run(8, "paused", dataset=str(images), model="mnist_cnn", image_size=28)
    job = run.job()
    assert job is not None
    job_panel.begin_prefill(Prefill(text="Resume", job=job, run=run, action="Resume"))
    form = job_panel.form
    qtbot.waitUntil(form.train.isEnabled)
    with qtbot.waitSignal(form.resume_requested), qtbot.assertNotEmitted(form.labels_requested):
        form.start()


def test_window_shows_labels_with_a_notice(open_window: OpenWindow, images: Path, qtbot: QtBot) -> None:
    window = open_window()
    page = window.workspace.get_page("dataset")
    window.inspector.done.disconnect()  # this test creates the reports
    window.inspector.failed.disconnect()
    form = fill(window.form, images, qtbot)
    window.activateWindow()
    with qtbot.waitSignal(form.labels_requested):
        press(form, qtbot)
    assert window.pages.currentWidget() is page
    assert page.notice.isVisible()
    assert "press Train again" in page.notice.text()
    assert page.examples.examples == UNCERTAIN.examples
    assert "Ctrl+Return" in page.notice.text()
    page.leave.trigger()
    assert page.notice.isHidden()


def test_window_shows_labels_after_an_inspection(open_window: OpenWindow, images: Path, qtbot: QtBot) -> None:
    window = open_window()
    window.inspector.done.disconnect()  # the reports are made here
    window.inspector.failed.disconnect()
    form = fill(window.form, images, qtbot, msgspec.structs.replace(UNCERTAIN, certain=True))
    with qtbot.waitSignal(form.folder_chosen):
        form.set_field("val_fraction", 0.3)
    form.start()
    assert form.is_inspecting
    with qtbot.waitSignal(form.labels_requested):
        form.set_report(UNCERTAIN)
    assert window.workspace.get_page("dataset").notice.isVisible()
