"""Dialog that creates a problem report, and saves it after the user has reviewed it."""

from __future__ import annotations

import io
import sys
import tempfile
import zipfile
from pathlib import Path

from PySide6.QtCore import QProcess, Qt, QTimer
from PySide6.QtGui import QHideEvent, QTextOption
from PySide6.QtWidgets import QDialog, QLabel, QListWidget, QPlainTextEdit, QSplitter, QWidget

from engine.contract.problems import Problem
from engine.system import paths
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.sources.background import await_exit, describe_error
from gui.sources.json_lines import GOODBYE_S
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.file_dialogs import choose_target
from gui.widgets.labels import ProblemLabel
from gui.widgets.layouts import hbox, resize_with_text, vbox

_REPORT_TIMEOUT_S = 180
_PREVIEW_CHARACTERS = 400_000
NAME = "footplate-report.zip"


class ReportDialog(QDialog):
    """Non-modal dialog that runs ``footplate doctor --report`` and shows the texts of the report.

    Closing it ends the command and deletes the dialog and the temporary files.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(tr("Report a problem"))
        styled(self, "panel")
        resize_with_text(self, 820, 600)
        self.texts: dict[str, str] = {}  # by name of the file in the report
        self.state = QLabel(tr("Checking this machine and collecting logs…"), wordWrap=True)
        self.files = styled(QListWidget(), name=tr("Files of the report"))
        self.files.currentTextChanged.connect(self._show_file)
        self.text = styled(QPlainTextEdit(readOnly=True), "code", name=tr("Text of the file"))
        self.text.setTabChangesFocus(True)
        self.text.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)  # fast for long lines, too
        self.problem = ProblemLabel()
        self.save = push_button(tr("&Save…"), self._choose_target)
        self.save.setEnabled(False)
        self.cancel = push_button(tr("Cancel"), self.close)
        parts = QSplitter(Qt.Orientation.Horizontal)
        parts.addWidget(self.files)
        parts.addWidget(self.text)
        parts.setSizes([200, 620])
        row = hbox((self.problem, 1), 1, self.save, self.cancel, spacing=10)
        self.setLayout(vbox(self.state, (parts, 1), row, spacing=10, margins=(14, 12, 14, 14)))
        self._archive = b""  # contents of the finished report, a zip file
        self._folder = tempfile.TemporaryDirectory(prefix="footplate-report-")
        self._file = Path(self._folder.name) / NAME
        # The report is created as soon as the dialog opens.
        self._process = QProcess(self)
        self._process.setWorkingDirectory(str(paths.PACKAGES))
        self._process.finished.connect(self._on_finished)
        self._process.errorOccurred.connect(self._on_error)
        self._process.start(sys.executable, ["-m", "footplate", "doctor", "--report", str(self._file)])
        QTimer.singleShot(1000 * _REPORT_TIMEOUT_S, self, self._process.kill)

    def hideEvent(self, event: QHideEvent) -> None:
        """End the command and delete its files if the dialog is closed, not if it is minimized with its window."""
        super().hideEvent(event)
        if not event.spontaneous():
            self._process.blockSignals(True)
            self._process.kill()
            await_exit(self._process, GOODBYE_S)
            self._folder.cleanup()

    def _on_finished(self) -> None:
        """Show the report that the command has written, or the command's last error line."""
        try:
            self._show_report(read_file(self._file, MAX_RESULT_BYTES))
        except (OSError, zipfile.BadZipFile):
            lines = bytes(self._process.readAllStandardError().data()).decode(errors="replace").strip().splitlines()
            self._show_failure(lines[-1].rstrip(".") if lines else tr("The command failed"))

    def _on_error(self, error: QProcess.ProcessError) -> None:
        if error == QProcess.ProcessError.FailedToStart:  # other errors also finish the process
            self._show_failure(self._process.errorString().rstrip("."))

    def _show_report(self, archive: bytes) -> None:
        """List the files in the zip file with the content `archive` for review, and let the user save it."""
        self._archive = archive
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            # All files are in the same folder of the archive, whose name is left out.
            self.texts = {name.partition("/")[2]: packed.read(name).decode() for name in packed.namelist()}
        self.state.setText(
            tr(
                "This is the full report. Names, paths and addresses are replaced, but logs may contain more than can be "
                "recognized: review it before you save it. Nothing is sent."
            )
        )
        self.files.addItems(list(self.texts))
        self.files.setCurrentRow(0)
        self.save.setEnabled(True)

    def _show_failure(self, cause: str) -> None:
        self.state.setText(tr("Couldn't create the report."))
        self.problem.show_problems((Problem("", f"{cause}.", tr("Try “footplate doctor” in a terminal.")),))

    def _show_file(self, name: str) -> None:
        self.text.setPlainText(self.texts.get(name, "")[:_PREVIEW_CHARACTERS])

    def _choose_target(self) -> None:
        choose_target(self, tr("Save the report"), NAME, self.write)

    def write(self, target: Path) -> None:
        """Save the reviewed report and close the dialog, or show why this isn't possible."""
        try:
            paths.write_atomically(target, self._archive)
        except OSError as error:
            self.problem.show_problems(
                (
                    Problem(
                        "",
                        tr("Couldn't save the report: {error}.").format(error=describe_error(error)),
                        tr("Choose another folder."),
                    ),
                )
            )
        else:
            self.close()
