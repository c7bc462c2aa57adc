"""Consent to run a model file, which is valid only for the current contents of the file."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import NamedTuple

from PySide6.QtCore import Signal
from PySide6.QtGui import QTextOption
from PySide6.QtWidgets import QFrame, QLabel, QPlainTextEdit, QVBoxLayout

from engine.checks.disk import model_file_sha256
from engine.runs.consent import record_consent
from engine.system.plain_text import escape
from engine.system.regular_files import UnusableFile, open_regular
from gui.format import counted
from gui.sources.background import in_background, reraise
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.layouts import hbox

PREVIEW_BYTES = 200_000
_BLOCK_BYTES = 1 << 20
_LINE_END = re.compile(r"\r\n|\r|\n")
"""Regular expression for Python's line terminators (Python language reference, 2.1.2)."""


class _Program(NamedTuple):
    """Start of a program's text with hidden characters escaped, and the number of bytes and lines of the rest."""

    path: str
    text: str
    hidden_bytes: int = 0
    hidden_lines: int = 0


class _ConsentResult(NamedTuple):
    """Result of saving the consent to run a model file.

    `sha256` is the hash of the file's current contents, or None if it can't be read. `problem` is the reason why the
    consent couldn't be saved, or "".
    """

    path: str
    sha256: str | None
    problem: str = ""


class ConsentBar(QFrame):
    """Banner that asks for consent to run a model file. It is hidden while there is nothing to ask.

    Signals:
        allowed(str): the user has allowed the contents with this SHA-256.
    """

    allowed = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._path = ""  # file that is asked about, or ""
        self._sha256: str | None = None  # hash of the contents that are asked about
        self._question = QLabel(wordWrap=True)
        self._show = push_button(tr("Show"), name=tr("Show the model file"))
        self._show.setCheckable(True)
        self._show.toggled.connect(self._show_program_text)
        self._allow = push_button(tr("Allow"), self._allow_contents, name=tr("Allow this model file to run"))
        self._text = styled(QPlainTextEdit(), "code", name=tr("Text of the model file"))
        self._text.setReadOnly(True)
        self._text.setTabChangesFocus(True)
        theme.scale_with_text(self._text.setFixedHeight, 180)  # lines wrap, so that no code is hidden at their ends
        self._text.setWordWrapMode(QTextOption.WrapMode.WrapAnywhere)  # fast for long lines, too
        self._hidden_note = styled(QLabel(wordWrap=True), "warning")
        self._hidden_note.hide()
        self._text.hide()
        buttons = hbox(1, self._show, self._allow, spacing=6)
        layout = QVBoxLayout(self)
        layout.addWidget(self._question)
        layout.addLayout(buttons)
        layout.addWidget(self._text)
        layout.addWidget(self._hidden_note)
        self.hide()

    def ask(self, path: str, sha256: str | None, *, agreed: bool) -> None:
        """Ask for consent to run a model file, or hide the banner if its contents are allowed or can't be read.

        `sha256` is the hash of the contents, or None if they can't be read. `agreed` is True if the user has allowed
        them.
        """
        if sha256 is None or agreed:
            self._path = ""
            self.hide()
            return
        if path != self._path:
            self._path = path
            self._show.setChecked(False)
            self._question.setText(
                tr("Run this file? {name} is a program and can do anything that you can.").format(name=Path(path).name)
            )
        elif sha256 != self._sha256:
            self._question.setText(tr("{file} has just changed. Run the new version?").format(file=Path(path).name))
            self._show_program_text(self._show.isChecked())
        self._sha256 = sha256
        self.show()

    def _show_program_text(self, is_visible: bool) -> None:
        """Read the model file on a worker thread and show its start, or hide that text."""
        self._text.setVisible(is_visible)
        self._hidden_note.hide()
        if is_visible:
            in_background(partial(_read_program, self._path), self, self._show_program, reraise)

    def _show_program(self, program: _Program) -> None:
        """Show the start of the model file, and how much isn't shown. Ignore the start of an earlier file."""
        if program.path != self._path:
            return
        self._text.setPlainText(program.text)
        note = tr(
            "Only the first {shown} are shown. Not shown: {hidden} in {lines}. "
            "Read the whole file in an editor before you allow it."
        )
        self._hidden_note.setText(
            note.format(
                shown=counted(PREVIEW_BYTES, "byte"),
                hidden=counted(program.hidden_bytes, "byte"),
                lines=counted(program.hidden_lines, "line"),
            )
        )
        self._hidden_note.setVisible(program.hidden_bytes > 0 and self._show.isChecked())

    def _allow_contents(self) -> None:
        """Save the user's consent to the visible contents of the model file, unless the file has changed since."""
        in_background(partial(_save_consent, self._path, self._sha256), self, self._on_agreed, reraise)

    def _on_agreed(self, result: _ConsentResult) -> None:
        """Emit `allowed` if consent was saved. Ask again if the model file has changed since it was shown."""
        if result.path != self._path:  # another file is asked about by now
            return
        if result.problem:
            self._question.setText(result.problem)
        elif result.sha256 is not None and result.sha256 == self._sha256:
            self.allowed.emit(result.sha256)
        else:
            self.ask(result.path, result.sha256, agreed=False)


def _save_consent(path: str, asked_sha256: str | None) -> _ConsentResult:
    """Save the consent to run a model file if its contents still have the hash `asked_sha256`."""
    sha256 = model_file_sha256(path)
    if sha256 is not None and sha256 == asked_sha256:
        try:
            record_consent(path, sha256)
        except OSError as error:
            text = tr("Couldn't save your consent: {error}. Set FOOTPLATE_HOME to a folder that you can write to.")
            return _ConsentResult(path, sha256, text.format(error=error))
    return _ConsentResult(path, sha256)


def _read_program(path: str) -> _Program:
    """Return the first `PREVIEW_BYTES` of a model's program, and the numbers of bytes and lines that follow them.

    If the file is unreadable, `text` of the result is the reason.
    """
    try:
        with open_regular(Path(path).expanduser()) as stream:
            preview = stream.read(PREVIEW_BYTES).decode(errors="replace")
            hidden_bytes = hidden_lines = 0
            last_byte = b"\n"
            while block := stream.read(_BLOCK_BYTES):
                hidden_bytes += len(block)
                hidden_lines += block.count(b"\n")
                last_byte = block[-1:]
            if last_byte != b"\n":
                hidden_lines += 1  # the last line has no line end
    except (OSError, UnusableFile) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        return _Program(path, tr("The file can't be read: {reason}.").format(reason=reason))
    text = "\n".join(map(escape, _LINE_END.split(preview)))
    return _Program(path, text, hidden_bytes, hidden_lines)
