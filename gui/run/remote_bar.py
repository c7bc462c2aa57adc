"""Banner for a run on another machine, which downloads files of the run."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QMenu, QPushButton, QWidget

from engine.contract.nodes import FetchProgress, RunFile
from engine.runs.folder import RunFolder
from engine.runs.index import machine_of
from gui.format import size, size_of
from gui.sources.background import in_background
from gui.sources.remote_runs import FileFetch, QueryFailed, files_of
from gui.translation import tr
from gui.widgets.buttons import push_button
from gui.widgets.labels import muted_label
from gui.widgets.layouts import hbox


class RemoteBar(QWidget):
    """Banner of a run on another machine.

    Signals:
        fetched(): a file of the run was downloaded.
    """

    fetched = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._run: RunFolder | None = None
        self._path = ""
        self.label = muted_label(word_wrap=True)
        self.label.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.button = QPushButton(tr("Fetch file …"))
        self.button.setToolTip(tr("Copies a checkpoint or a log of this run to this machine"))
        self.cancel = push_button(tr("Cancel"), self._cancel, tip=tr("Keeps the partial data"))
        self.files = FileFetch(self)
        self.setLayout(hbox((self.label, 1), self.button, self.cancel))
        self.button.clicked.connect(self._list_files)
        self.files.progress.connect(self._show_progress)
        self.files.done.connect(self._on_done)
        self.files.refused.connect(self._show_state)
        self.files.failed.connect(self._show_state)
        self.hide()
        self.cancel.hide()

    def show_run(self, run: RunFolder) -> None:
        """Show the banner if `run` is on another machine."""
        if run is not self._run:
            self._run = run
            self.files.cancel()
            self._show_state()
            self.setVisible(bool(machine_of(run)))

    def fetch(self, path: str) -> None:
        """Download a file of the run."""
        assert self._run is not None
        self._path = path
        self._show_state(tr("Fetching {path} …").format(path=path))
        self.files.start(machine_of(self._run), self._run.run_id, path)
        self.cancel.show()
        self.button.hide()

    def close_work(self) -> None:
        self.files.close()

    def _list_files(self) -> None:
        """List the files on a thread, then show them in a menu."""
        assert self._run is not None
        run = self._run
        in_background(
            partial(files_of, machine_of(run), run.run_id), self, partial(self._show_menu, run), self._show_error
        )

    def _show_menu(self, run: RunFolder, files: list[RunFile]) -> None:
        if run is not self._run:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        for file in files:
            action = menu.addAction(f"{file.path} · {size(file.size_bytes)}".replace("&", "&&"))
            action.triggered.connect(lambda _on=False, path=file.path: self.fetch(path))
        if not files:
            menu.addAction(tr("No files to fetch")).setEnabled(False)
        menu.popup(self.button.mapToGlobal(self.button.rect().bottomLeft()))

    def _show_error(self, error: Exception) -> None:
        if not isinstance(error, QueryFailed):
            raise error
        self._show_state(str(error))

    def _cancel(self) -> None:
        self.files.cancel()
        self._show_state()

    def _show_progress(self, progress: FetchProgress) -> None:
        self.label.setText(
            tr("Fetching {path}: {done_bytes}").format(
                path=self._path, done_bytes=size_of(progress.done_bytes, progress.total_bytes)
            )
        )

    def _on_done(self, path: str) -> None:
        self._show_state(f"{self._path} is in {path}.")
        self.fetched.emit()

    def _show_state(self, text: str = "") -> None:
        machine = machine_of(self._run) if self._run is not None else ""
        self.label.setText(
            text or tr("This run is on {machine}. Closing the window doesn't affect it.").format(machine=machine)
        )
        self.cancel.hide()
        self.button.show()
