"""Welcome page."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QLabel
from pytestqt.qtbot import QtBot

from engine.checks.machine_findings import Finding, Grade
from engine.checks.torch_support import TorchBuild
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.system import paths
from gui.form import environment
from gui.form.followers import create_sample_job
from gui.main_window import MainWindow
from gui.pages import MONITOR
from gui.sources.settings import Settings
from gui.welcome import page as page_module
from gui.welcome.page import FindingRow, WelcomePage
from gui.widgets.labels import IconLabel
from tests.gui.sources.devices.snapshots import gpu, snapshot
from tests.support.nvml_profiles import make_consumer_gpu_profile
from tests.support.nvml_stub import NvmlStub
from tests.support.widgets import OpenWindow, ShowWidget, is_right_of

CU132 = TorchBuild("2.15.0+cu132", "13.2", ("sm_80", "sm_89", "sm_90"))


@pytest.fixture(autouse=True)
def cuda_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate that torch is built for CUDA 13.2."""
    for module in (page_module, environment):
        monkeypatch.setattr(module, "find_installed_torch", lambda: CU132)


def texts(page: WelcomePage) -> dict[str, str]:
    return {row.text.accessibleName().partition(":")[0]: row.text.text() for row in page.rows}


def test_welcome_page_describes_machine_until_it_changes(show_widget: ShowWidget, qtbot: QtBot) -> None:
    page = show_widget(WelcomePage())
    tops = {label.text(): label.mapTo(page, QPoint()).y() for label in page.findChildren(QLabel)}
    assert tops["This machine"] < tops["Checking this machine…"]
    machine = snapshot(gpu(0), gpu(1))
    page.set_machine(machine)
    qtbot.waitUntil(lambda: "Disk" in texts(page))
    assert texts(page)["GPUs"].startswith("2 × NVIDIA H200")
    requested: list[bool] = []
    page.sample_requested.connect(requested.append)
    page.sample.click()
    assert "CPU" not in page.about_sample.text()
    assert str(paths.home()) in texts(page)["Disk"]
    rows = page.rows
    page.set_machine(msgspec.structs.replace(machine, time=machine.time + 1))
    page.set_machine(snapshot(status="not_answering", message="NVML is silent."))
    assert page.rows is rows
    page.set_machine(snapshot(status="no_library", message="Install the driver."))
    assert "Devices" in texts(page)["Driver"]
    assert "Install the driver." not in texts(page)["Driver"], "the panel Devices shows it"
    page.sample.click()
    assert requested == [True, False]
    assert "on the CPU" in page.about_sample.text()


@pytest.mark.parametrize(
    ("remedy", "text", "command"),
    [
        ("Update it: sudo apt install driver", "The driver is old. Update it:", "sudo apt install driver"),
        ("Restart the machine.", "The driver is old. Restart the machine.", ""),
        ("", "The driver is old.", ""),
    ],
)
def test_finding_has_its_remedy_and_command(
    show_widget: ShowWidget, qtbot: QtBot, remedy: str, text: str, command: str
) -> None:
    finding = Finding("limited", "Driver", "the driver is old.", remedy)
    row = show_widget(FindingRow(finding), 600, 120)
    assert (row.text.text(), row.text.accessibleName()) == (text, str(finding))
    assert row.copy.isVisible() is bool(command)
    commands = [label.accessibleName() for label in row.findChildren(QLabel) if label.isVisible()]
    assert (command in commands) or not command
    if command:
        row.copy.click()
        assert QGuiApplication.clipboard().text() == row.copy.toolTip() == command


@pytest.mark.parametrize(
    ("grade", "remedy", "icon", "spoken"),
    [
        ("fine", "", ("ok", "ok"), "Fine"),
        ("limited", "Restart.", ("warning", "warning"), "Note"),
        ("limited", "", ("info", "accent"), "Note"),
        ("cpu_only", "", ("error", "error"), "Wrong"),
    ],
)
def test_finding_has_an_icon(
    show_widget: ShowWidget, grade: Grade, remedy: str, icon: tuple[str, str], spoken: str
) -> None:
    row = show_widget(FindingRow(Finding(grade, "Driver", "It is old.", remedy)))
    label = row.findChild(IconLabel)
    assert label.accessibleName() == spoken
    assert label.pixmap().toImage() == show_widget(IconLabel(*icon)).pixmap().toImage()


def test_welcome_page_stacks_texts_and_columns_if_narrow(show_widget: ShowWidget, qtbot: QtBot) -> None:
    page = show_widget(WelcomePage())
    page.set_machine(snapshot(gpu(0)))
    for width, has_texts_beside, has_two_columns in ((1600, True, True), (800, True, False), (400, False, False)):
        page.resize(width, 800)
        qtbot.waitUntil(lambda expected=has_texts_beside: is_right_of(page.about_sample, page.sample) is expected)
        qtbot.waitUntil(lambda expected=has_two_columns: is_right_of(page.rows[0].text, page.sample) is expected)


def test_welcome_page_with_old_driver_trains_on_cpu(
    open_window: OpenWindow, nvml_stub: NvmlStub, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml_stub.write([make_consumer_gpu_profile(0)], driver_version="550.144.03", cuda_version=12040)
    window = open_window()
    welcome = window.train.welcome
    qtbot.waitUntil(lambda: bool(welcome.rows))
    worst = welcome.rows[0]
    assert "550.144.03" in worst.text.text()
    assert "580.65.06" in worst.text.text()
    worst.copy.click()
    command = QGuiApplication.clipboard().text()
    assert command.startswith("uv pip install ")
    assert command.endswith("--torch-backend=cu126")
    qtbot.waitUntil(lambda: not window.form.is_inspecting)
    assert not window.form.train.isEnabled()  # because the GPU is selected
    requested: list[object] = []
    window.form.train_requested.disconnect()
    window.form.train_requested.connect(requested.append)
    welcome.sample.setFocus()
    qtbot.keyClick(welcome.sample, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: bool(requested))
    (job,) = requested
    assert isinstance(job, Job)
    assert (job.data.dataset, job.model.name, job.parallel.devices) == (
        create_sample_job().data.dataset,
        "timm:tf_efficientnet_lite0",
        ("cpu",),
    )  # type: ignore[attr-defined]
    assert "CPU" in window.form.body.devices_problems.text()


def test_sample_button_is_visible_once_it_has_the_focus(styled: QApplication, qtbot: QtBot) -> None:
    """Check that the button is visible before the next event, because an invisible button loses the focus."""
    window = MainWindow()
    qtbot.addWidget(window)
    visible: list[bool] = []
    window.completed.connect(lambda: visible.append(window.train.welcome.sample.isVisible()))
    with qtbot.waitSignal(window.completed):
        window.show()
    assert visible == [True]
    window.close()


def test_welcome_buttons_train_sample_browse_and_monitor(
    open_window: OpenWindow, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    welcome = window.train.welcome
    assert window.focusWidget() is welcome.sample
    buttons = (welcome.sample, window.form.train)
    assert [button.objectName() for button in buttons] == ["primary", ""]
    with qtbot.waitSignal(window.form.changed):
        window.form.set_field("dataset", "")
    assert [button.objectName() for button in buttons] == ["primary", ""]
    window.form.set_field("dataset", str(paths.sample_dataset()))
    started: list[bool] = []
    monkeypatch.setattr(window.form, "start", lambda: started.append(True))
    qtbot.keyClick(welcome.sample, Qt.Key.Key_Return)
    assert started == [True]
    qtbot.waitUntil(window.form.train.isEnabled)
    assert window.focusWidget() is welcome.sample
    browsed: list[bool] = []
    monkeypatch.setattr(type(window.form), "browse", lambda _form: browsed.append(True))
    welcome.open.click()
    assert browsed == [True]
    assert window.form.isVisible()
    window.form.set_field("dataset", str(paths.home()))
    qtbot.waitUntil(lambda: [button.objectName() for button in buttons] == ["", "primary"])
    welcome.watch.click()
    assert window.acts.page == MONITOR
    assert window.workspace.monitor.isVisible()


def test_focus_is_on_train_with_job_of_last_session(open_window: OpenWindow, qtbot: QtBot) -> None:
    Settings().remember_job(create_sample_job().with_fields(devices=(CPU,)))
    window = open_window()
    qtbot.waitUntil(lambda: window.focusWidget() is window.form.train)
