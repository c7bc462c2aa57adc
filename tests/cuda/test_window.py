"""Real window on a machine with simulated GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from engine.contract.events import DevicesFree, RunStarted
from gui.devices.rows import GpuRow
from gui.main_window import MainWindow
from tests.gui.conftest import OFFSCREEN_NOISE, open_window, styled  # noqa: F401 - fixtures
from tests.gui.whole.test_whole_path import points, press_train, wait_for_status, wait_until_ready

from .conftest import Machine

pytestmark = pytest.mark.qt_log_ignore(OFFSCREEN_NOISE)


@pytest.mark.long
def test_train_and_stop_in_the_window_on_two_gpus(
    machine: Machine,
    images: Path,
    open_window: Callable[[], MainWindow],  # noqa: F811
    qtbot: QtBot,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host = machine(2)
    for name, value in host.environment.items():
        monkeypatch.setenv(name, value)
    window = open_window()
    assert window.workspace is not None
    qtbot.waitUntil(lambda: window.workspace.devices.selection() == host.uuids[:1])
    chosen = {"dataset": str(images), "model": "mnist_cnn", "predictions": 0, "image_size": 16}
    for field, value in chosen.items():
        window.form.rows[field].set_value(value)
    (second,) = (row for row in window.workspace.devices.findChildren(GpuRow) if not row.check.isChecked())
    second.check.click()
    assert window.workspace.devices.selection() == host.uuids
    run = press_train(wait_until_ready(window, qtbot), qtbot, epochs=1000)
    qtbot.waitUntil(lambda: points(window) > 0)
    assert all(host.state.read_allocated_bytes(gpu) for gpu in range(2))
    window.acts.stop.trigger()
    wait_for_status(window, "Stopped", qtbot)
    (started,) = (event for event in run.events() if isinstance(event, RunStarted))
    assert started.job.parallel.devices == host.uuids
    assert (started.job.parallel.strategy, started.job.resolved_strategy) == ("auto", "ddp")
    (free,) = (event for event in run.events() if isinstance(event, DevicesFree))
    assert free.verified
    assert not any(map(host.state.read_allocated_bytes, range(2)))
