"""Training from the first click to the finished model, in the real window with the real engine on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QAbstractButton, QApplication, QLineEdit, QTableView
from pytestqt.qtbot import QtBot

from engine.contract.events import StepMetrics
from engine.runs.folder import RunFolder, list_runs
from engine.system import paths
from gui.form.fields import METHOD
from gui.main_window import MainWindow
from gui.pages import MONITOR, RUNS, TRAIN
from gui.run.header import CLASSES, PREDICTIONS
from tests.support.drops import drop_files
from tests.support.widgets import OpenWindow

pytestmark = pytest.mark.usefixtures("real_inspector")


LITE = "timm:tf_efficientnet_lite0"


def wait_until_ready(window: MainWindow, qtbot: QtBot) -> MainWindow:
    """Wait until the Train button is enabled, and return the window."""
    qtbot.waitUntil(window.form.train.isEnabled)
    return window


def status(window: MainWindow) -> str:
    return window.status.status.text()


def press_train(window: MainWindow, qtbot: QtBot, epochs: int, model: str = "mnist_cnn") -> RunFolder:
    """Press the Train button and return the run that starts."""
    window.form.set_field("model", model)
    window.form.set_field("epochs", epochs)
    wait_until_ready(window, qtbot)
    with qtbot.waitSignal(window.workspace.launcher.started, raising=False) as started:
        qtbot.mouseClick(window.form.train, Qt.MouseButton.LeftButton)
    assert started.args is not None, f"{status(window)}; {window.form.submit_bar.reason.text()}"
    return started.args[0]


def points(window: MainWindow) -> int:
    return len(window.workspace.session.data.steps.step)


def wait_for_status(window: MainWindow, state: str, qtbot: QtBot) -> None:
    qtbot.waitUntil(lambda: status(window).startswith(state))


def open_views(window: MainWindow) -> None:
    """Open the class metrics and the predictions of the run, and check that they are visible."""
    page = window.workspace.run
    page.header.tabs.setCurrentIndex(CLASSES)
    assert page.classes.content.table.rows.rowCount() == 10
    assert page.classes.content.matrix.isVisible()
    assert len(window.workspace.session.data.validation_details.predicted) == 1
    page.header.tabs.setCurrentIndex(PREDICTIONS)
    assert page.predictions.strip.count() == 8
    assert (page.predictions.truth.problem, page.predictions.prediction.problem) == ("", "")
    assert page.predictions.prediction_words.text()


@pytest.mark.usefixtures("preloader")
def test_train_in_a_new_home_trains_the_sample(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    wait_for_status(window, "Idle", qtbot)
    assert window.form.field_value("dataset") == str(paths.sample_dataset())
    assert window.form.field_value("model") == LITE
    assert window.form.field_value("pretrained")
    assert "10 classes, 450 images" in window.form.card.text()
    window.form.set_field("image_size", 32)  # at the model's own size, the epoch would take a quarter of a minute
    run = press_train(window, qtbot, epochs=1, model=LITE)
    qtbot.waitUntil(lambda: points(window) > 0)
    wait_for_status(window, "Completed", qtbot)
    assert (run.checkpoints / "best.pt").is_file()
    assert not window.status.stop.isEnabled()
    open_views(window)
    window.header.show_page(2)
    table = next(t for t in window.findChildren(QTableView) if t.accessibleName() == "Runs")
    qtbot.waitUntil(lambda: table.model().rowCount() == 1)


@pytest.mark.long
def test_stop_reports_free_devices(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    run = press_train(window, qtbot, epochs=1000)
    qtbot.waitUntil(lambda: points(window) > 0)
    assert status(window).startswith("Running")
    window.acts.stop.trigger()
    wait_for_status(window, "Stopped", qtbot)
    assert "free" in status(window)
    supervisor = run.supervisor()
    qtbot.waitUntil(lambda: not supervisor.alive())
    assert run.state() == "stopped"


def test_run_continues_without_the_window(open_window: OpenWindow, qtbot: QtBot) -> None:
    first = wait_until_ready(open_window(), qtbot)
    run = press_train(first, qtbot, epochs=1000)
    qtbot.waitUntil(lambda: points(first) > 0)
    first.close()
    count = sum(1 for _ in run.events())
    qtbot.waitUntil(lambda: sum(1 for _ in run.events()) > count)
    second = open_window()
    assert second.form.field_value("epochs") == 1000
    wait_for_status(second, "Running", qtbot)
    second.acts.stop.trigger()
    wait_for_status(second, "Stopped", qtbot)
    assert [other.run_id for other in list_runs()] == [run.run_id]
    written = sum(isinstance(event, StepMetrics) for event in run.events())
    assert points(second) == written > 0


@pytest.mark.long
def test_job_is_started_by_keyboard(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    qtbot.waitUntil(window.isActiveWindow)
    visited: list[str] = []
    press_tab_until(window, "Epochs", visited, qtbot)
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_A, Qt.KeyboardModifier.ControlModifier)
    qtbot.keyClicks(QApplication.focusWidget(), "1")
    press_tab_until(window, f"{METHOD} options", visited, qtbot)
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Space)
    press_tab_until(window, "Train", visited, qtbot)
    wait_until_ready(window, qtbot)
    qtbot.keyClick(QApplication.focusWidget(), Qt.Key.Key_Space)
    wait_for_status(window, "Running", qtbot)
    wait_for_status(window, "Completed", qtbot)
    _tab_round(window, visited)
    for name in ("Dataset folder", "Task", "Model", "Strategy", "Batch size", "Learning rate", "CPU", "CPU workers"):
        assert any(name_visited.startswith(name) for name_visited in visited), f"Tab does not reach {name}"


def press_tab_until(window: MainWindow, name: str, visited: list[str], qtbot: QtBot) -> None:
    """Press Tab until a widget with this accessible name, or a button with this text, has the focus.

    `visited` collects the names of the widgets on the way.
    """
    for _press in range(200):
        widget = QApplication.focusWidget() or window
        qtbot.keyClick(widget, Qt.Key.Key_Tab)
        focused = QApplication.focusWidget()
        text = focused.text().replace("&", "") if isinstance(focused, QAbstractButton) else ""
        visited.append(focused.accessibleName() or text)
        if visited[-1] == name:
            return
    pytest.fail(f"Tab does not reach {name}; it reached {visited}")


def _tab_round(window: MainWindow, visited: list[str]) -> None:
    first = QApplication.focusWidget()
    for _press in range(200):
        window.focusNextChild()
        focused = QApplication.focusWidget()
        if focused is None or focused is first:
            return
        visited.append(focused.accessibleName())


@pytest.mark.long
@pytest.mark.usefixtures("preloader")
def test_run_survives_an_early_close(open_window: OpenWindow, qtbot: QtBot) -> None:
    window = wait_until_ready(open_window(), qtbot)
    window.form.set_field("epochs", 1)
    window.form.set_field("image_size", 32)  # at the model's own size, an epoch can take minutes on a busy machine
    wait_until_ready(window, qtbot)
    window.form.start()
    window.close()
    (run,) = list_runs()
    qtbot.waitUntil(lambda: run.state() == "completed")


def test_failed_start_is_a_form_problem(window: MainWindow, qtbot: QtBot, separate_home: Path) -> None:
    separate_home.mkdir()
    (separate_home / "runs").write_text("in the way")
    qtbot.mouseClick(window.form.train, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "FOOTPLATE_HOME" in window.form.reason.text())
    assert str(separate_home / "runs") in window.form.reason.text()
    wait_for_status(window, "Idle", qtbot)


def test_dropped_folder_becomes_the_dataset(open_window: OpenWindow, qtbot: QtBot, images: Path) -> None:
    window = open_window()
    drop_files(window, images)
    qtbot.waitUntil(lambda: window.form.field_value("dataset") == str(images))
    wait_for_status(window, "Checking", qtbot)
    qtbot.waitUntil(lambda: not window.form.train.isEnabled() and not window.form.is_inspecting)
    assert window.form.rows["dataset"].problem_label.text()
    assert not any(line.acceptDrops() for line in window.form.findChildren(QLineEdit))


def test_devices_panel_is_remembered_per_page(open_window: OpenWindow, qtbot: QtBot) -> None:
    first = open_window()
    first.splitter.setSizes([330, 950])
    sizes = first.splitter.sizes()
    for page in (MONITOR, RUNS):
        first.header.show_page(page)
        assert not first.dock.panel.isVisible()
        qtbot.waitUntil(lambda: first.pages.width() > 0.98 * first.width())
    first.header.devices.click()
    assert first.dock.panel.isVisible()
    first.header.show_page(TRAIN)
    qtbot.waitUntil(lambda: first.splitter.sizes() == sizes)
    first.header.show_page(MONITOR)
    qtbot.waitUntil(lambda: first.pages.width() > 0.98 * first.width())
    first.close()
    second = open_window()
    second.resize(first.size())  # the screen of the tests is so narrow that the panel is folded
    assert second.dock.panel.isVisible()
    second.header.show_page(MONITOR)
    assert not second.dock.panel.isVisible()
    second.show_form()
    assert second.form.isVisible()
