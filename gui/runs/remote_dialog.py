"""Dialog for opening a run on another machine."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QLabel, QTreeWidget, QTreeWidgetItem, QWidget

from engine.runs.folder import RunSummary
from gui.format import format_date_and_time
from gui.sources.background import in_background
from gui.sources.devices.hosts import Hosts
from gui.sources.remote_runs import QueryFailed, list_remote_runs
from gui.style import theme
from gui.titles import model_title, run_title
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.editors import ComboBox
from gui.widgets.layouts import hbox, resize_with_text, vbox


class RemoteRunsDialog(QDialog):
    """Non-modal dialog that lists the runs on a host.

    Signals:
        chosen(str, str): the user has opened the run with this host and id.
    """

    chosen = Signal(str, str)

    def __init__(self, hosts: Hosts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Open run on another machine"))
        styled(self, "panel")
        self._hosts = hosts
        self.host = styled(ComboBox(), name=tr("Host"))
        self.reload = push_button(tr("&Refresh"), self.refresh)
        self.reload.setAutoDefault(False)
        self.state = styled(QLabel(wordWrap=True), name=tr("State of the request"))
        self.list = styled(QTreeWidget(), name=tr("Runs of the host"))
        self.list.setHeaderLabels([tr("Run"), tr("Model"), tr("State"), tr("Started")])
        self.list.setRootIsDecorated(False)
        self.open_button = push_button(tr("&Open"), self._choose, style="primary")
        self._lay_out()
        self.host.currentIndexChanged.connect(lambda _index: self.refresh())
        self.list.itemSelectionChanged.connect(self._update_open)
        self.list.itemActivated.connect(lambda _item, _column: self._choose())
        hosts.changed.connect(self._update_hosts)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._update_hosts()

    def refresh(self) -> None:
        """Request the list of runs from the selected host over ssh."""
        name = self.host.currentText()
        self.list.clear()
        self._update_open()
        if not name:
            self._show_state(tr("Add a machine under Hosts… in the Monitor first."))
            return
        self._show_state(tr("Asking {name}…").format(name=name))
        in_background(
            partial(list_remote_runs, name), self, partial(self._show_runs, name), partial(self._on_failed, name)
        )

    def _lay_out(self) -> None:
        label = QLabel(tr("&Host"))
        label.setBuddy(self.host)
        top, bottom = hbox(label, (self.host, 1), self.reload), hbox((self.state, 1), self.open_button)
        self.setLayout(vbox(top, (self.list, 1), bottom, spacing=10, margins=(14, 12, 14, 14)))
        resize_with_text(self, 640, 420)

    def _update_hosts(self) -> None:
        """Offer the current hosts and request the runs of the selected one, while the dialog is visible."""
        if not self.isVisible():
            return  # showEvent updates them
        selected = self.host.currentText()
        with QSignalBlocker(self.host):
            self.host.clear()
            self.host.addItems(self._hosts.names)
            self.host.setCurrentIndex(max(0, self.host.findText(selected)))
        self.refresh()

    def _show_runs(self, name: str, runs: list[RunSummary]) -> None:
        """List the runs of a host instead of earlier ones, unless another host has been chosen in the meantime."""
        if name != self.host.currentText():
            return
        self.list.clear()  # an earlier request may have filled it
        for run in runs:
            item = QTreeWidgetItem(
                [run_title(run), model_title(run.model), run.state, format_date_and_time(run.started)]
            )
            item.setData(0, Qt.ItemDataRole.UserRole, run.run_id)
            item.setToolTip(0, run.run_id)
            self.list.addTopLevelItem(item)
        for column in range(self.list.columnCount()):
            self.list.resizeColumnToContents(column)
        first = self.list.topLevelItem(0)
        if first is not None:
            self.list.setCurrentItem(first)
        self._show_state("" if runs else tr("There are no runs on {name}.").format(name=name))

    def _on_failed(self, name: str, error: Exception) -> None:
        """Show why a host's runs can't be listed, unless another host has been chosen."""
        if not isinstance(error, QueryFailed):
            raise error
        if name == self.host.currentText():
            self._show_state(f"⚠ {error}", "warning")

    def _show_state(self, text: str, kind: str = "muted") -> None:
        self.state.setText(text)
        theme.set_kind(self.state, kind)

    def _update_open(self) -> None:
        self.open_button.setEnabled(bool(self.list.selectedItems()))

    def _choose(self) -> None:
        for item in self.list.selectedItems():
            self.chosen.emit(self.host.currentText(), item.data(0, Qt.ItemDataRole.UserRole))
            self.close()
