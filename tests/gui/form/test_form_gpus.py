"""Problems at the device field: GPUs that the job can't use."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from engine.contract.devices import Snapshot
from engine.contract.hosts import Host, put_host
from engine.contract.problems import Choice, Problem
from gui.form.form import JobForm
from gui.form.panel import JobPanel
from tests.engine.checks.machines import PASCAL, driver, gpu, held_by, instance, machine
from tests.support.nvml_stub import NvmlStub, make_gpu_profile
from tests.support.torch_builds import write_torch_build
from tests.support.widgets import OpenWindow

OLD = driver("570.86.15", "12.8")
PARTITIONED = gpu(mig_enabled=True)
CASES: dict[str, tuple[Snapshot, tuple[str, ...], str]] = {
    "an old driver": (machine(gpu(0), gpu(1), nvml=OLD), (gpu(0).uuid, gpu(1).uuid), "Update the driver to 580.65.06"),
    "an old card": (machine(gpu(0), PASCAL), (PASCAL.uuid,), "not for GPU 1 (NVIDIA GeForce GTX 1080, 6.1)"),
    "a closed card": (machine(gpu(compute_mode="prohibited")), (gpu().uuid,), "sudo nvidia-smi -i 0 -c DEFAULT"),
    "a whole card under MIG": (
        machine(PARTITIONED, instance(7, PARTITIONED)),
        (PARTITIONED.uuid,),
        "Choose a MIG instance",
    ),
    "two instances of MIG": (
        machine(PARTITIONED, instance(7, PARTITIONED), instance(9, PARTITIONED)),
        (instance(7, PARTITIONED).uuid, instance(9, PARTITIONED).uuid),
        "Choose one MIG instance",
    ),
}


@pytest.fixture(autouse=True)
def _visible_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def wrong_devices(form: JobForm) -> str:
    return form.body.devices_problems.text() if form.body.devices_problems.isVisibleTo(form) else ""


def test_unusable_gpus_are_device_problems(filled: JobForm, qtbot: QtBot) -> None:
    for found, chosen, remedy in CASES.values():
        filled.set_machine(found)
        filled.set_devices(chosen)
        qtbot.waitUntil(lambda remedy=remedy: remedy in wrong_devices(filled))
        assert not filled.train.isEnabled()
        assert "Devices" in filled.train.toolTip()
        assert remedy not in filled.reason.text()  # it is only below the devices
        filled.set_devices(("cpu",))
        qtbot.waitUntil(filled.train.isEnabled)
        assert not wrong_devices(filled) or wrong_devices(filled).startswith("The run is on the CPU. ")


def test_hidden_gpus_are_reported(filled: JobForm, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    filled.set_machine(machine(gpu(0), gpu(1)))
    filled.set_devices((gpu(0).uuid,))
    qtbot.waitUntil(lambda: "which hides GPU 0. Choose GPU 1, or start Footplate again" in wrong_devices(filled))
    filled.set_devices((gpu(1).uuid,))
    qtbot.waitUntil(filled.train.isEnabled)


def test_new_torch_is_noticed(filled: JobForm, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = machine()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(write_torch_build(tmp_path / "cpu", "2.15.0+cpu")))
        filled.set_machine(found)
        filled.set_devices((gpu().uuid,))
        qtbot.waitUntil(lambda: "torch 2.15.0+cpu is built without CUDA" in wrong_devices(filled))
        (text,) = (
            label for label in filled.body.devices_problems.findChildren(QLabel) if "pip install" in label.text()
        )
        assert text.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
        patch.syspath_prepend(str(write_torch_build(tmp_path / "cuda", "2.15.0+cu130", "13.0", ("sm_90",))))
        filled.set_machine(found)
        qtbot.waitUntil(filled.train.isEnabled)


def test_exclusive_gpu_is_freed_with_its_process(filled: JobForm, qtbot: QtBot) -> None:
    filled.set_devices((gpu().uuid,))
    filled.set_machine(machine(gpu(compute_mode="exclusive_process", processes=held_by("python"))))
    qtbot.waitUntil(lambda: "in use by python (pid 4242, ada)" in wrong_devices(filled))
    filled.set_machine(machine(gpu(compute_mode="exclusive_process")))
    qtbot.waitUntil(filled.train.isEnabled)


def test_window_passes_its_chosen_gpu(open_window: OpenWindow, qtbot: QtBot, nvml_stub: NvmlStub) -> None:
    nvml_stub.write([make_gpu_profile(index) for index in range(4)], driver_version="570.86.15", cuda_version=12080)
    window = open_window()
    qtbot.waitUntil(lambda: "NVIDIA driver 570.86.15 is too old" in wrong_devices(window.form))
    assert window.form.body.devices.text() == "GPU 0"
    assert not window.form.train.isEnabled()
    window.commands.preferences.set("default_devices", "gpus")
    assert len(window.workspace.devices.selection()) == 4


def test_remote_devices_must_be_reachable(filled: JobForm, qtbot: QtBot) -> None:
    for name in ("ws1", "ws2"):
        put_host(Host(name=name))
    filled.set_machine(machine())
    filled.set_hosts({"ws1:GPU-1": "ws1 GPU 0"}, {})
    filled.set_devices(("ws1:cpu", "ws1:cpu", "ws2:cpu"))
    filled.set_field("strategy", "ddp")
    qtbot.waitUntil(lambda: filled.body.devices.text() == "ws1 CPU, 2 workers, ws2 CPU")
    assert filled.train.isEnabled()
    assert filled.job.parallel.devices == ("ws1:cpu", "ws1:cpu", "ws2:cpu")
    filled.set_hosts({}, {"ws2": "ws2 refused the connection."})
    qtbot.waitUntil(lambda: "ws2 refused the connection." in wrong_devices(filled))
    assert not filled.train.isEnabled()
    filled.set_devices(("ws1:cpu", "ws1:cpu"))
    qtbot.waitUntil(filled.train.isEnabled)
    filled.set_hosts({"ws1:GPU-1": "ws1 GPU 0"}, {})
    filled.set_devices(("ws1:GPU-1",))
    qtbot.waitUntil(lambda: filled.body.devices.text() == "ws1 GPU 0")


def test_alert_of_a_checked_device_is_a_warning(filled: JobForm, qtbot: QtBot) -> None:
    hot = Problem("devices", "GPU 0 is hot.", "", "warning")
    filled.set_device_warnings({"cpu": (hot,), "GPU-other": (hot,)})
    qtbot.waitUntil(lambda: filled.steps.states["Devices"] == "attention")
    assert filled.problems.count(hot) == 1
    assert filled.train.isEnabled()


def test_choice_of_devices_is_passed_to_devices_panel(job_panel: JobPanel, qtbot: QtBot) -> None:
    with qtbot.waitSignal(job_panel.devices_requested) as requested:
        job_panel.apply(Choice("Use GPU 2 instead", {"devices": "GPU-a,GPU-b"}))
    assert requested.args == [("GPU-a", "GPU-b")]
