"""Fixture for alerts with a simulated clock, which get one snapshot per second."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication

from engine.contract.devices import Gpu, NvmlStatus
from gui.alerts.rules import KindId
from gui.alerts.watcher import Alert, Alerts
from tests.gui.sources.devices.snapshots import snapshot

START = 1_700_000_000.0


class AlertsRecorder(QObject):
    """Holder of an `Alerts` object with a simulated clock, and a record of the signals that the object emits.

    `now` is the current time of the simulated clock, and the time of the last snapshot. `reported_alerts` are the active
    alerts at the last change that was reported.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.now = START
        self.alerts = Alerts(self, folder=folder, clock=lambda: self.now)
        self.raised: list[Alert] = []
        self.cleared: list[Alert] = []
        self.alerts.raised.connect(self.raised.append)
        self.alerts.cleared.connect(self.cleared.append)
        self.reported_alerts: tuple[Alert, ...] = ()
        self.alerts.changed.connect(self._on_changed)

    def feed(
        self,
        *gpus: Gpu,
        seconds: int = 1,
        host: str = "",
        holding: Mapping[str, str] | None = None,
        status: NvmlStatus = "ok",
        message: str = "",
    ) -> None:
        """Pass a snapshot of `gpus` on `host` to the alerts once per simulated second, for `seconds`.

        `holding` contains the names of the runs on GPUs, by `device_key`. `status` and `message` are those of NVML.
        """
        for _ in range(seconds):
            self.now += 1
            self.alerts.evaluate(
                host, snapshot(*gpus, time=self.now, status=status, message=message), holding if holding else {}
            )

    def set(self, kind: KindId, **changes: object) -> None:
        """Replace fields of the alert rule for `kind` by `changes`."""
        self.alerts.set_rule(msgspec.structs.replace(self.alerts.rules[kind], **changes))

    @property
    def kinds(self) -> list[str]:
        """Kinds of all active alerts at the last change that was reported."""
        return [alert.kind for alert in self.reported_alerts]

    def _on_changed(self) -> None:
        self.reported_alerts = self.alerts.active_alerts


@pytest.fixture
def watched(styled: QApplication, tmp_path: Path) -> AlertsRecorder:
    return AlertsRecorder(tmp_path)
