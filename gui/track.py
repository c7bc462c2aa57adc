"""The parts that are made after the first paint: the pages of the track, the devices and what feeds them."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QWidget

from engine.contract.runs import RunFolder
from gui.cut.page import CutPage
from gui.devices.history import DeviceHistory
from gui.devices.monitor import MonitorPage
from gui.devices.panel import DevicesPanel
from gui.devices.sampler import SamplerProcess
from gui.launcher import Launcher
from gui.run.page import RunPage
from gui.run.store import RunStore
from gui.runs.page import RunsPage


class Track(QObject):
    """Owns the run on screen, the sampler and the launcher."""

    def __init__(self, parent: QObject) -> None:
        super().__init__(parent)
        history = DeviceHistory()
        self.sampler = SamplerProcess(self)
        self.devices = DevicesPanel(history)
        self.store = RunStore(self)
        self.launcher = Launcher(self)
        self.run = RunPage(self.store)
        self.monitor = MonitorPage(history)
        self.runs = RunsPage()
        self.cut = CutPage()
        self.has_run = False

    @property
    def pages(self) -> tuple[QWidget, ...]:
        """Those that the header leads to, in its order, then the one that the form leads to."""
        return self.run, self.monitor, self.runs, self.cut

    def start(self) -> None:
        """Begins to sample the devices and has a warm parent made ready."""
        self.sampler.start()
        self.launcher.touch()

    def open_run(self, run: RunFolder) -> None:
        self.store.open(run)
        self.has_run = True

    def close(self) -> None:
        """Ends what belongs to the window alone; runs go on."""
        self.store.close()
        self.sampler.stop()
        self.runs.close_reading()
        self.cut.planner.close()
        self.launcher.close()
