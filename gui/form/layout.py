"""Layout of a form: main fields, then sections with the other fields, in one column or two."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QAbstractSpinBox, QBoxLayout, QHBoxLayout, QLabel, QWidget

from engine.contract.problems import Problem
from gui.form.consent import ConsentBar
from gui.form.dataset_card import DatasetCard
from gui.form.field_row import CollapsibleSection, FieldRow
from gui.form.fields import METHOD, SECTIONS, STACKED_FIELDS, JobFields, find_section
from gui.form.setting_filter import SettingFilter
from gui.style import theme
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.flash import Flash
from gui.widgets.labeled_field import LABEL_WIDTH
from gui.widgets.labels import ProblemLabel, muted_label
from gui.widgets.layouts import hbox, scroll_panel, vbox

_MAX_MIN_WIDTH = 500
"""Maximum width in pixels that the fields may require. Wider content, as with large texts, scrolls."""
_TWO_COLUMNS = 780
"""Minimum width for two columns, in pixels at a text size of 100%."""
_MAX_COLUMN = 720


class _Column(QWidget):
    """Column of the form.

    Signals:
        resized(int): the column has this width in pixels.
    """

    resized = Signal(int)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit(event.size().width())


class FormLayout(QWidget):
    """Layout with the main fields of a job, and sections with all others."""

    def __init__(self, fields: JobFields, card: DatasetCard, consent: ConsentBar, scaled_rate: Banner) -> None:
        super().__init__()
        self._fields = fields
        self.devices = muted_label(word_wrap=True)
        self.devices_problems = ProblemLabel()
        self.sections = [
            CollapsibleSection(METHOD, self._rows_of(METHOD), fields.options, revealed=("warning", "error")),
            *(CollapsibleSection(title, self._rows_of(title)) for title in SECTIONS if title != METHOD),
        ]
        self.filter = SettingFilter(fields.rows, self.sections)
        self.filter.pointed.connect(self.point_at)
        self.filter.chosen.connect(self.focus_field)
        rows = fields.rows
        # The columns with the main fields and with the sections, side by side if there is room.
        self.main, self._others, inside = _Column(), QWidget(), QWidget()
        stacked = hbox(*((rows[name], 1) for name in STACKED_FIELDS))
        self.main.setLayout(
            vbox(
                rows["dataset"],
                card,
                rows["model"],
                rows["encoder"],
                rows["pretrained"].problem_label,  # missing weights affect the choice of the model
                consent,
                stacked,
                scaled_rate,
                *(rows[name].problem_label for name in STACKED_FIELDS),
                self._create_devices_line(),
                self.devices_problems,
            )
        )
        self._others.setLayout(vbox(self.filter, *self.sections))
        self._columns = QBoxLayout(QBoxLayout.Direction.TopToBottom, inside)
        self._columns.setContentsMargins(14, 12, 14, 12)
        self._columns.setSpacing(12)
        for column in (self.main, self._others):
            theme.scale_with_text(column.setMaximumWidth, _MAX_COLUMN)
            self._columns.addWidget(column, int(column is self._others), Qt.AlignmentFlag.AlignTop)
        self._area = scroll_panel(inside, min_content_width=_MAX_MIN_WIDTH)
        self.setLayout(vbox(self._area))

    def _rows_of(self, title: str) -> list[FieldRow]:
        return [self._fields.rows[name] for name in SECTIONS[title]]

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Arrange the main fields and the sections in two columns if there is enough width."""
        super().resizeEvent(event)
        is_wide = event.size().width() >= theme.scale_pixels(_TWO_COLUMNS)
        direction = QBoxLayout.Direction.LeftToRight if is_wide else QBoxLayout.Direction.TopToBottom
        if direction != self._columns.direction():
            self._columns.setDirection(direction)
            self._columns.setStretch(0, int(is_wide))  # otherwise the main fields would take the remaining height

    def section(self, title: str) -> CollapsibleSection:
        return next(section for section in self.sections if section.title == title)

    def focus_field(self, name: str) -> None:
        """Open the section of the field `name`, scroll to the field, focus it, and highlight it for a moment."""
        self._reveal(name)
        control = self._fields.rows[name].editor.control
        control.setFocus(Qt.FocusReason.OtherFocusReason)
        if isinstance(control, QAbstractSpinBox):
            control.selectAll()
        self._flash(name)

    def point_at(self, name: str) -> None:
        """Scroll to the field `name` and highlight it for a moment, without focusing it."""
        self._reveal(name)
        self._flash(name)

    def show_problems(self, problems: Sequence[Problem]) -> None:
        """Show problems next to their fields and open the sections that contain errors."""
        self._fields.show_problems(problems)
        self.devices_problems.show_problems(tuple(problem for problem in problems if problem.field == "devices"))
        for section in self.sections:
            section.reveal_problems()
        if self._fields.options.has_error:
            self.section(METHOD).set_open(True)

    def _reveal(self, name: str) -> None:
        """Scroll to the field `name`, after clearing a filter that hides it and opening its section."""
        row, title = self._fields.rows[name], find_section(name)
        if row.is_filtered_out:
            self.filter.box.clear()
        if title:
            self.section(title).set_open(True)
        self._area.ensureWidgetVisible(row)
        # A section that has just been opened gets its height in the next layout.
        QTimer.singleShot(0, row, lambda: self._area.ensureWidgetVisible(row))

    def _flash(self, name: str) -> None:
        """Highlight a field for a moment, if the form is visible."""
        if self.isVisible():
            Flash(self._fields.rows[name])

    def _create_devices_line(self) -> QHBoxLayout:
        """Create the row that shows the devices of the job, with a title."""
        title = QLabel(tr("Devices"))
        theme.scale_with_text(title.setMinimumWidth, LABEL_WIDTH)
        return hbox(title, (self.devices, 1), spacing=4)
