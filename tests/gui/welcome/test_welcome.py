"""The first start: what it finds of the machine, and where its three ways lead."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.checks.torch_build import TorchBuild
from engine.contract.devices import CPU
from engine.contract.job import Job
from engine.system import paths
from gui.actions import MONITOR
from gui.form import form as form_module
from gui.form.task_detection import sample_job
from gui.main_window import MainWindow
from gui.sources.settings import Settings
from gui.welcome import page as page_module
from gui.welcome.page import WelcomePage
from tests.gui.sources.devices.snapshots import gpu, snapshot
from tests.support.nvml_profiles import consumer_gpu
from tests.support.nvml_stub import NvmlStub

CU132 = TorchBuild("2.15.0+cu132", "13.2", ("sm_80", "sm_89", "sm_90"))


@pytest.fixture(autouse=True)
def _built_for_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever torch is installed here."""
    for module in (page_module, form_module):
        monkeypatch.setattr(module, "installed_torch", lambda: CU132)


def said(page: WelcomePage) -> dict[str, str]:
    return {row.text.accessibleName().partition(":")[0]: row.text.text() for row in page.rows}


def test_that_a_machine_with_gpus_is_told_and_told_anew_only_if_it_has_changed(
    styled: QApplication, qtbot: QtBot
) -> None:
    page = WelcomePage()
    qtbot.addWidget(page)
    page.show()
    two = snapshot(gpu(0), gpu(1))
    page.set_machine(two)
    qtbot.waitUntil(lambda: "Disk" in said(page))
    assert said(page)["GPUs"] == "2 × NVIDIA H200, 141.0 GiB each"
    assert page.has_usable_gpu
    assert "CPU" not in page.about_sample.text()
    assert str(paths.home()) in said(page)["Disk"]
    rows = page.rows
    page.set_machine(msgspec.structs.replace(two, time=two.time + 1))
    assert page.rows is rows
    page.set_machine(snapshot(status="no_library", message="Install the driver."))
    assert said(page)["Driver"] == "Install the driver."
    assert not page.has_usable_gpu
    assert "on the CPU" in page.about_sample.text()


def test_that_a_driver_too_old_is_seen_first_and_the_sample_trains_on_the_cpu_all_the_same(
    open_window: Callable[[], MainWindow], nvml_stub: NvmlStub, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvml_stub.write([consumer_gpu(0)], driver_version="550.144.03", cuda_version=12040)
    window = open_window()
    assert window.workspace is not None
    welcome = window.workspace.run.welcome
    qtbot.waitUntil(lambda: bool(welcome.rows))
    worst = welcome.rows[0]
    assert "NVIDIA driver 550.144.03 is too old" in worst.text.text()
    assert "580.65.06" in worst.text.text()
    worst.copy.click()
    command = QGuiApplication.clipboard().text()
    assert command.startswith("uv pip install ")
    assert command.endswith("--torch-backend=cu126")
    qtbot.waitUntil(lambda: not window.form.checking)
    assert not window.form.train.isEnabled()  # the GPU is the chosen device
    asked: list[object] = []
    window.form.train_requested.disconnect()
    window.form.train_requested.connect(asked.append)
    welcome.sample.setFocus()
    qtbot.keyClick(welcome.sample, Qt.Key.Key_Space)
    qtbot.waitUntil(lambda: bool(asked))
    (job,) = asked
    assert isinstance(job, Job)
    assert (job.data.dataset, job.model.name, job.parallel.devices) == (
        sample_job().data.dataset,
        "timm:tf_efficientnet_lite0",
        ("cpu",),
    )  # type: ignore[attr-defined]
    assert "The run is on the CPU." in window.form.devices_problems.text()


def test_that_the_keyboard_is_on_the_sample_at_the_first_start_and_the_other_ways_lead_to_the_form_and_the_monitor(
    open_window: Callable[[], MainWindow], qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = open_window()
    assert window.workspace is not None
    welcome = window.workspace.run.welcome
    assert window.focusWidget() is welcome.sample
    asked: list[bool] = []
    monkeypatch.setattr(window.form, "start", lambda: asked.append(True))
    qtbot.keyClick(welcome.sample, Qt.Key.Key_Return)
    assert asked == [True]
    qtbot.waitUntil(window.form.train.isEnabled)
    assert window.focusWidget() is welcome.sample
    browsed: list[bool] = []
    monkeypatch.setattr(type(window.form), "browse", lambda _form: browsed.append(True))
    window.acts.job_panel.setChecked(False)
    welcome.open.click()
    assert browsed == [True]
    assert window.form.isVisible()
    welcome.watch.click()
    assert window.acts.page == MONITOR
    assert window.workspace.monitor.isVisible()


def test_that_the_keyboard_is_on_train_where_there_is_a_job_of_last_time(
    open_window: Callable[[], MainWindow], qtbot: QtBot
) -> None:
    Settings().remember_job(sample_job().with_fields(devices=(CPU,)))
    window = open_window()
    qtbot.waitUntil(lambda: window.focusWidget() is window.form.train)
