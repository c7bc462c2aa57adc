"""Reporting a problem: the report is made, looked through, and only then saved."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from PySide6.QtCore import Qt
from PySide6.QtGui import QFontDatabase
from PySide6.QtWidgets import (
    QDialog,
    QHBoxLayout,
    QLabel,
    QListWidget,
    QPlainTextEdit,
    QPushButton,
    QSplitter,
    QVBoxLayout,
    QWidget,
)

from engine.contract.problems import Problem
from engine.system import paths
from gui.sources.background import in_background, why
from gui.widgets.file_dialogs import choose_target
from gui.widgets.problem_label import ProblemLabel

_MAKING_S = 180
_SHOWN_CHARACTERS = 400_000
NAME = "footplate-report.zip"


class ReportDialog(QDialog):
    """Makes a report by ``footplate doctor --report`` and shows all of its texts. Not modal; deletes itself when closed."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Report a problem")
        self.setObjectName("panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.resize(820, 600)
        self.texts: dict[str, str] = {}
        self.state = QLabel("Checking this machine and collecting the logs …", wordWrap=True)
        self.files = QListWidget()
        self.files.setAccessibleName("Files of the report")
        self.files.currentTextChanged.connect(self._show)
        self.text = QPlainTextEdit(readOnly=True)
        self.text.setAccessibleName("Text of the file")
        self.text.setFont(QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont))
        self.text.setTabChangesFocus(True)
        self.problem = ProblemLabel()
        self.save = QPushButton("&Save …")
        self.save.setEnabled(False)
        self.save.clicked.connect(self._ask_where)
        self.cancel = QPushButton("Cancel")
        self.cancel.clicked.connect(self.close)
        parts = QSplitter(Qt.Orientation.Horizontal)
        parts.addWidget(self.files)
        parts.addWidget(self.text)
        parts.setSizes([200, 620])
        row = QHBoxLayout()
        row.addWidget(self.problem, 1)
        row.addStretch(1)
        row.addWidget(self.save)
        row.addWidget(self.cancel)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(14, 12, 14, 14)
        layout.setSpacing(10)
        layout.addWidget(self.state)
        layout.addWidget(parts, 1)
        layout.addLayout(row)
        self._archive = b""
        in_background(_made, self, self._take, self._failed)

    def _take(self, archive: bytes) -> None:
        import io

        self._archive = archive
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            self.texts = {name.partition("/")[2]: packed.read(name).decode() for name in packed.namelist()}
        self.state.setText(
            "This is all that the report holds. Names, paths and addresses are replaced, but logs may say more than can be "
            "recognised: look it through before you save it. Nothing is sent."
        )
        self.files.addItems(list(self.texts))
        self.files.setCurrentRow(0)
        self.save.setEnabled(True)

    def _failed(self, error: Exception) -> None:
        self.state.setText("The report could not be made.")
        self.problem.show_problems((Problem("", f"{why(error)}.", "Try “footplate doctor” in a terminal."),))

    def _show(self, name: str) -> None:
        self.text.setPlainText(self.texts.get(name, "")[:_SHOWN_CHARACTERS])

    def _ask_where(self) -> None:
        choose_target(self, "Save the report", NAME, self.write)

    def write(self, target: Path) -> None:
        """Writes what has been looked through, as it was."""
        try:
            paths.put_into_place(target, self._archive)
        except OSError as error:
            self.problem.show_problems((Problem("", f"Could not save it: {why(error)}.", "Choose another folder."),))
        else:
            self.close()


def _made() -> bytes:
    """A report, as the terminal makes it. Raises OSError, also where the command fails."""
    folder = Path(tempfile.mkdtemp(prefix="footplate-report-"))
    file = folder / NAME
    command = [sys.executable, "-m", "footplate", "doctor", "--report", str(file)]
    try:
        done = subprocess.run(
            command, cwd=paths.PACKAGES, env=os.environ, capture_output=True, text=True, timeout=_MAKING_S, check=False
        )
        if done.returncode:
            raise OSError(0, (done.stderr.strip().splitlines() or ["The command failed"])[-1].rstrip("."))
        return file.read_bytes()
    except subprocess.TimeoutExpired:
        raise OSError(0, f"Checking this machine took more than {_MAKING_S} s") from None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
