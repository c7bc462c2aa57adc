"""Says that the run on screen is on another machine, and fetches files of it from there."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QMenu, QPushButton, QWidget

from engine.contract.nodes import FetchProgress, RunFile
from engine.runs.folder import RunFolder
from engine.runs.index import machine_of
from gui.format import size, size_of
from gui.sources.background import in_background
from gui.sources.remote_runs import FileFetch, QueryFailed, files_of


class RemoteBar(QWidget):
    """In sight while a run of another machine is on screen.

    Signals: fetched() - a file of the run has come.
    """

    fetched = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._path = ""
        self.label = QLabel(wordWrap=True)
        self.label.setObjectName("muted")
        self.label.setTextFormat(Qt.TextFormat.PlainText)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.button = QPushButton("Fetch file …")
        self.button.setToolTip("Copies a checkpoint or a log of this run to this machine")
        self.cancel = QPushButton("Cancel")
        self.cancel.setToolTip("Keeps what has come, for the next time")
        self.files = FileFetch(self)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.label, 1)
        row.addWidget(self.button)
        row.addWidget(self.cancel)
        self.button.clicked.connect(self._ask)
        self.cancel.clicked.connect(self._cancel)
        self.files.progress.connect(self._show_progress)
        self.files.done.connect(self._done)
        self.files.refused.connect(self._show_state)
        self.files.failed.connect(self._show_state)
        self.hide()
        self.cancel.hide()

    def show_run(self, run: RunFolder) -> None:
        """Is there for `run` if that is on another machine."""
        if run is not self._run:
            self._run = run
            self.files.cancel()
            self._show_state()
            self.setVisible(bool(machine_of(run)))

    def fetch(self, path: str) -> None:
        """Fetches a file of the run."""
        assert self._run is not None
        self._path = path
        self._show_state(f"Fetching {path} …")
        self.files.start(machine_of(self._run), self._run.run_id, path)
        self.cancel.show()
        self.button.hide()

    def close_work(self) -> None:
        self.files.close()

    def _ask(self) -> None:
        """Offers what there is."""
        assert self._run is not None
        run = self._run
        in_background(partial(files_of, machine_of(run), run.run_id), self, partial(self._offer, run), self._not_told)

    def _offer(self, run: RunFolder, files: list[RunFile]) -> None:
        if run is not self._run:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for file in files:
            action = menu.addAction(f"{file.path} · {size(file.size_bytes)}".replace("&", "&&"))
            action.triggered.connect(lambda _on=False, path=file.path: self.fetch(path))
        if not files:
            menu.addAction("There is nothing to fetch yet").setEnabled(False)
        menu.popup(self.button.mapToGlobal(self.button.rect().bottomLeft()))

    def _not_told(self, error: Exception) -> None:
        if not isinstance(error, QueryFailed):
            raise error
        self._show_state(str(error))

    def _cancel(self) -> None:
        self.files.cancel()
        self._show_state()

    def _show_progress(self, told: FetchProgress) -> None:
        self.label.setText(f"Fetching {self._path}: {size_of(told.done_bytes, told.total_bytes)}")

    def _done(self, path: str) -> None:
        self._show_state(f"{self._path} is in {path}.")
        self.fetched.emit()

    def _show_state(self, text: str = "") -> None:
        machine = machine_of(self._run) if self._run is not None else ""
        self.label.setText(text or f"This run is on {machine}. Closing the window changes nothing for it.")
        self.cancel.hide()
        self.button.show()
