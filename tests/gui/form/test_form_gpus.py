"""Return the form with a valid job on the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel
from pytestqt.qtbot import QtBot

from engine.contract.devices import Snapshot
from engine.contract.hosts import Host, put_host
from gui.form.form import JobForm
from tests.engine.checks.machines import PASCAL, driver, gpu, held_by, instance, machine
from tests.gui.form.test_form import fill
from tests.support.nvml_stub import NvmlStub, gpu_profile
from tests.support.torch_builds import torch_build
from tests.support.widgets import OpenWindow

OLD = driver("570.86.15", "12.8")
WHOLE = gpu(mig_enabled=True)
CASES: dict[str, tuple[Snapshot, tuple[str, ...], str]] = {
    "an old driver": (machine(gpu(0), gpu(1), nvml=OLD), (gpu(0).uuid, gpu(1).uuid), "Update the driver to 580.65.06"),
    "an old card": (machine(gpu(0), PASCAL), (PASCAL.uuid,), "not for GPU 1 (NVIDIA GeForce GTX 1080, 6.1)"),
    "a closed card": (machine(gpu(compute_mode="prohibited")), (gpu().uuid,), "sudo nvidia-smi -i 0 -c DEFAULT"),
    "a whole card under MIG": (machine(WHOLE, instance(7, WHOLE)), (WHOLE.uuid,), "Choose a MIG instance"),
    "two instances of MIG": (
        machine(WHOLE, instance(7, WHOLE), instance(9, WHOLE)),
        (instance(7, WHOLE).uuid, instance(9, WHOLE).uuid),
        "Choose one MIG instance",
    ),
}


@pytest.fixture(autouse=True)
def _shown_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


@pytest.fixture
def ready(form: JobForm, images: Path, qtbot: QtBot) -> JobForm:
    """Return the form with a valid job on the CPU."""
    fill(form, images, qtbot)
    assert form.train.isEnabled()
    return form


def wrong_devices(form: JobForm) -> str:
    return form.devices_problems.text() if form.devices_problems.isVisibleTo(form) else ""


def test_unusable_gpus_are_device_problems(ready: JobForm, qtbot: QtBot) -> None:
    for seen, chosen, remedy in CASES.values():
        ready.set_machine(seen)
        ready.set_devices(chosen)
        qtbot.waitUntil(lambda remedy=remedy: remedy in wrong_devices(ready))
        assert not ready.train.isEnabled()
        assert "Devices" in ready.train.toolTip()
        ready.set_devices(("cpu",))
        qtbot.waitUntil(ready.train.isEnabled)
        assert not wrong_devices(ready) or wrong_devices(ready).startswith("The run is on the CPU. ")


def test_hidden_gpus_are_reported(ready: JobForm, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    ready.set_machine(machine(gpu(0), gpu(1)))
    ready.set_devices((gpu(0).uuid,))
    qtbot.waitUntil(lambda: "which hides GPU 0. Choose GPU 1, or start Footplate again" in wrong_devices(ready))
    ready.set_devices((gpu(1).uuid,))
    qtbot.waitUntil(ready.train.isEnabled)


def test_new_torch_is_noticed(ready: JobForm, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = machine()
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(torch_build(tmp_path / "cpu", "2.15.0+cpu")))
        ready.set_machine(seen)
        ready.set_devices((gpu().uuid,))
        qtbot.waitUntil(lambda: "torch 2.15.0+cpu is built without CUDA" in wrong_devices(ready))
        (text,) = (label for label in ready.devices_problems.findChildren(QLabel) if "pip install" in label.text())
        assert text.textInteractionFlags() & Qt.TextInteractionFlag.TextSelectableByMouse
        patch.syspath_prepend(str(torch_build(tmp_path / "cuda", "2.15.0+cu130", "13.0", ("sm_90",))))
        ready.set_machine(seen)
        qtbot.waitUntil(ready.train.isEnabled)


def test_exclusive_gpu_is_freed_with_its_process(ready: JobForm, qtbot: QtBot) -> None:
    ready.set_devices((gpu().uuid,))
    ready.set_machine(machine(gpu(compute_mode="exclusive_process", processes=held_by("python"))))
    qtbot.waitUntil(lambda: "in use by python (pid 4242, ada)" in wrong_devices(ready))
    ready.set_machine(machine(gpu(compute_mode="exclusive_process")))
    qtbot.waitUntil(ready.train.isEnabled)


def test_window_passes_its_chosen_gpu(open_window: OpenWindow, qtbot: QtBot, nvml_stub: NvmlStub) -> None:
    nvml_stub.write([gpu_profile(index) for index in range(4)], driver_version="570.86.15", cuda_version=12080)
    window = open_window()
    qtbot.waitUntil(lambda: "NVIDIA driver 570.86.15 is too old" in wrong_devices(window.form))
    assert window.form.devices_label.text() == "GPU 0"
    assert not window.form.train.isEnabled()


def test_remote_devices_must_be_reachable(ready: JobForm, qtbot: QtBot) -> None:
    for name in ("ws1", "ws2"):
        put_host(Host(name=name))
    ready.set_machine(machine())
    ready.set_hosts({"ws1:GPU-1": "ws1 GPU 0"}, {})
    ready.set_devices(("ws1:cpu", "ws1:cpu", "ws2:cpu"))
    ready.set_field("strategy", "ddp")
    qtbot.waitUntil(lambda: ready.devices_label.text() == "ws1 CPU, 2 workers, ws2 CPU")
    assert ready.train.isEnabled()
    assert ready.job.parallel.devices == ("ws1:cpu", "ws1:cpu", "ws2:cpu")
    ready.set_hosts({}, {"ws2": "ws2 refused the connection."})
    qtbot.waitUntil(lambda: "ws2 refused the connection." in wrong_devices(ready))
    assert not ready.train.isEnabled()
    ready.set_hosts({"ws1:GPU-1": "ws1 GPU 0"}, {})
    ready.set_devices(("ws1:GPU-1",))
    qtbot.waitUntil(lambda: ready.devices_label.text() == "ws1 GPU 0")
