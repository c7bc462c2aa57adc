"""Dialog that adds and removes hosts, and messages about hosts that don't send values."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtCore import Qt
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QLabel, QLineEdit, QPushButton, QWidget

from engine.contract.devices import Snapshot
from gui.format import counted
from gui.sources.devices.hosts import Hosts
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.labels import caption, heading_label, muted_label
from gui.widgets.layouts import hbox, resize_with_text, scroll_panel, vbox, with_layout

_HINT = tr(
    "Footplate watches a host by running “footplate gpus --json --watch” on it over ssh, without a password. Enter "
    "any name that works with “ssh NAME” in a terminal. Set a port or a key in ~/.ssh/config. A host's devices can be "
    "checked under Devices, too."
)


class HostDialog(QDialog):
    """Non-modal dialog with the list of monitored remote hosts."""

    def __init__(self, hosts: Hosts, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Hosts"))
        styled(self, "panel")
        self._hosts = hosts
        self.name = styled(QLineEdit(), name=tr("Name of the host"))
        self.name.setPlaceholderText(tr("user@host"))
        self.name.returnPressed.connect(self._add)
        self.add = push_button(tr("&Add"), self._add)
        self.add.setAutoDefault(False)
        self.problem = caption("", "error")
        self.problem.hide()
        self.name.textChanged.connect(lambda _text: self.problem.hide())
        hint = muted_label(_HINT, word_wrap=True)
        label = QLabel(tr("&Host"))
        label.setBuddy(self.name)
        row = hbox(label, (self.name, 1), self.add, spacing=10)
        self._rows = vbox(1, spacing=10)
        scroll = scroll_panel(with_layout(self._rows))
        self._states: dict[str, QLabel] = {}  # by host
        self._row_widgets: list[QWidget] = []
        self.setLayout(vbox(row, self.problem, hint, (scroll, 1), spacing=10, margins=(14, 12, 14, 14)))
        self.setMinimumSize(400, 300)
        resize_with_text(self, 500, 420)
        hosts.changed.connect(self._show_rows)
        hosts.error_changed.connect(lambda _host, _message: self._show_states())
        hosts.snapshot.connect(lambda _host, _snapshot: self._show_states())
        self._show_rows()

    def states(self) -> dict[str, str]:
        """Return the text of each host's status line, by host."""
        return {name: label.text() for name, label in self._states.items()}

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_states()

    def _add(self) -> None:
        """Monitor the host whose name was entered, or show why that isn't possible."""
        name = self.name.text().strip()
        problem = self._hosts.problem(name)
        self.problem.setText(problem)
        self.problem.setVisible(bool(problem))
        if not problem:
            self._hosts.add(name)
            self.name.clear()
        self.name.setFocus()

    def _show_rows(self) -> None:
        for row in self._row_widgets:
            row.deleteLater()
        self._states = {}
        self._row_widgets = [self._make_row(name) for name in self._hosts.names]
        for index, row in enumerate(self._row_widgets):
            self._rows.insertWidget(index, row)
        self._show_states()

    def _make_row(self, name: str) -> QWidget:
        """Create the row of the host `name`. The label of its status is stored in `_states`."""
        state = self._states[name] = QLabel(wordWrap=True)
        remove = QPushButton(tr("Remove"))
        remove.setAutoDefault(False)
        remove.setAccessibleName(tr("Stop watching {name}").format(name=name))
        remove.clicked.connect(lambda: self._hosts.remove(name))
        texts = vbox(heading_label(name), state, spacing=2)
        return with_layout(hbox((texts, 1), (remove, 0, Qt.AlignmentFlag.AlignTop), spacing=6))

    def _show_states(self) -> None:
        """Show next to each host that it is connected, or its error, while the dialog is visible."""
        if not self.isVisible():
            return
        for name, label in self._states.items():
            error, snapshot = self._hosts.errors.get(name), self._hosts.latest.get(name)
            if error:
                text, kind = f"⚠ {error}", "warning"
            elif snapshot is None:
                text, kind = tr("connecting…"), "muted"
            else:
                count = len(snapshot.gpus)
                text, kind = tr("connected: {gpus}").format(gpus=counted(count, "GPU")), "muted"
            label.setText(text)
            theme.set_kind(label, kind)


def list_host_errors(latest: Mapping[str, Snapshot], errors: Mapping[str, str]) -> list[str]:
    """Return a sentence for each host with an error in its connection, sampler or NVML.

    Hosts that are connecting are left out.
    """
    sentences = []
    for name in sorted({*latest, *errors}):  # this machine, whose name is "", is first
        snapshot = latest.get(name)
        error = errors.get(name) or (_nvml_error(snapshot) if snapshot is not None else "")
        if error:
            sentences.append(f"{name}: {error}" if name and name not in error else error)
    return sentences


def _nvml_error(snapshot: Snapshot) -> str:
    """Return NVML's error message, or "" if there is no error, or if NVML hasn't responded yet since the start."""
    is_pending = snapshot.nvml.status == "not_answering" and not snapshot.gpus
    return "" if snapshot.nvml.status == "ok" or is_pending else snapshot.nvml.message
