"""A job of another run that is in the form for a while, and the form's own, which comes back after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QAbstractSpinBox, QFrame, QHBoxLayout, QLabel, QPushButton, QWidget

from engine.contract.job import Job
from gui.sources.prefill import Prefill
from gui.widgets.icon_label import IconLabel

if TYPE_CHECKING:
    from gui.form.form import JobForm

_ANOTHER = "Can't be changed when resuming. Fork the run to change it."
_WHY_NOT = {
    "name": "Can't be changed here. Rename the run on the Runs page (F2).",
    "resume_from": "The run resumes from its own last checkpoint.",
}


class PrefillBand(QFrame):
    """Above the form: whose job this is, and the way back to the form's own. Hidden while that is on screen.

    Signals: left() - the form's own job is wanted back.
    """

    left = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self.setAccessibleName("Another run's job in the form")
        self.text = QLabel(wordWrap=True)
        self.text.setTextFormat(Qt.TextFormat.PlainText)
        self.cancel = QPushButton("Cancel")
        self.cancel.setAccessibleName("Cancel, back to the form's own job")
        self.cancel.setToolTip("Restores the previous job in the form (Esc)")
        self.cancel.clicked.connect(self.left)
        row = QHBoxLayout(self)
        row.setContentsMargins(10, 6, 8, 6)
        row.setSpacing(8)
        row.addWidget(IconLabel("info", "accent", "Information"), 0, Qt.AlignmentFlag.AlignTop)
        row.addWidget(self.text, 1)
        row.addWidget(self.cancel, 0, Qt.AlignmentFlag.AlignTop)
        self.hide()

    def say(self, text: str) -> None:
        """Shows itself with `text`; hides itself with none."""
        self.text.setText(text)
        self.cancel.setAccessibleDescription(text)
        self.setVisible(bool(text))


@dataclass(frozen=True)
class _SavedForm:
    """State of the form's own job: the values of its editors, valid or not, and the job, if they made one."""

    values: dict[str, Any]
    options: dict[str, Any]
    trusted: str
    devices: tuple[str, ...]
    job: Job | None
    follows_model: bool


class PrefillMode(QObject):
    """Shows another run's job in the form, one at a time, and restores the form's own job after it.

    Signals: devices_wanted(object) - these devices (a tuple) are to be chosen in the devices panel.

    Attributes: prefill - None while the form's own job is on screen; band - what stands above the form.
    """

    devices_wanted = Signal(object)

    def __init__(self, form: JobForm) -> None:
        super().__init__(form)
        self.prefill: Prefill | None = None
        self.band = PrefillBand()
        self._form = form
        self._saved: _SavedForm | None = None
        self._escape = QShortcut(QKeySequence(Qt.Key.Key_Escape), form)
        self._escape.setContext(Qt.ShortcutContext.WidgetWithChildrenShortcut)
        self._escape.setEnabled(False)
        self._escape.activated.connect(self.end)
        self.band.left.connect(self.end)

    @property
    def action(self) -> str:
        """What the button says that starts what is on screen."""
        return self.prefill.action if self.prefill is not None else "Train"

    @property
    def own_job(self) -> Job | None:
        """The form's own job, on screen or not; None where what was typed makes none."""
        return self._saved.job if self._saved is not None else self._form.job

    def begin(self, prefill: Prefill) -> None:
        """Shows `prefill`, in place of the form's own job or of another prefill."""
        form = self._form
        if self._saved is None:
            values = {name: row.editor.value() for name, row in form.rows.items()}
            follows_model = form.models.is_active
            self._saved = _SavedForm(values, form.options.values(), form.trusted, form.devices, form.job, follows_model)
        self.prefill = prefill
        form.recipes.paused = True
        form.set_job(prefill.job)
        self._bind_rows(prefill)
        for name, value in prefill.preset.items():
            form.rows[name].set_value(value)
        for section in form.sections:
            if any(row.field.name in prefill.preset for row in section.rows):
                section.set_open(True)
        self.devices_wanted.emit(prefill.job.devices)
        self._say(prefill.said)
        _go_to(form.rows[prefill.focus].editor.control)

    def end(self) -> None:
        """Brings the form's own job back."""
        saved, form = self._saved, self._form
        if saved is None:
            return
        inside = form.isAncestorOf(form.window().focusWidget() or form.window())
        self.prefill, self._saved = None, None
        self._bind_rows(None)
        form.trusted = saved.trusted
        with form.recipes.loading():
            for name, value in saved.values.items():
                form.rows[name].set_value(value)
            form.options.set_values(saved.options)
        form.recipes.paused = False
        form.models.is_active = saved.follows_model
        self.devices_wanted.emit(saved.devices)
        self._say("")
        if inside:
            form.submit_bar.focus_train()

    def _bind_rows(self, prefill: Prefill | None) -> None:
        self._form.options.setEnabled(prefill is None or "options" in prefill.open_fields)
        for name, row in self._form.rows.items():
            if prefill is None:
                row.set_standard(row.default, "Back to the default")
                row.lock("")
            else:
                row.set_standard(getattr(prefill.job, name), "Back to the run's value")
                row.lock("" if name in prefill.open_fields else _WHY_NOT.get(name, _ANOTHER))

    def _say(self, text: str) -> None:
        self.band.say(text)
        self._escape.setEnabled(bool(text))
        self._form.judge()


def _go_to(control: QWidget) -> None:
    control.setFocus(Qt.FocusReason.OtherFocusReason)
    if isinstance(control, QAbstractSpinBox):
        control.selectAll()
