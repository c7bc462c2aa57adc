"""Read-only view of a run's job, next to the run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QFont, QResizeEvent
from PySide6.QtWidgets import QTreeWidgetItem, QWidget

from engine.contract.job import FIELDS, Job, changed_fields
from gui.style import theme
from gui.titles import format_job_value, option_fields
from gui.translation import tr
from gui.widgets.buttons import push_button, styled
from gui.widgets.labels import EmptyState, heading_label
from gui.widgets.layouts import FrontStack, hbox, vbox
from gui.widgets.trees import TreeWidget

_GAP = 14
"""Space between a label and its value in pixels, at a text size of 100%."""
_VALUE_WIDTH = 60
"""Minimum width of the values in pixels, at a text size of 100%. In a narrower view, they are below their labels."""
_LABEL, _VALUE = Qt.ItemDataRole.UserRole, Qt.ItemDataRole.UserRole + 1


class _Line(NamedTuple):
    """Setting of a run with its label, its formatted value and a help text."""

    label: str
    value: str
    help_text: str


class SettingsTree(TreeWidget):
    """Tree of labels and values side by side or, if the view is narrow, below each other."""

    def __init__(self) -> None:
        super().__init__()
        self._is_stacked = False
        self._items: list[QTreeWidgetItem] = []
        self.setColumnCount(2)
        self.setHeaderHidden(True)
        self.header().setStretchLastSection(True)
        self.header().setMinimumSectionSize(0)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)

    def add(self, group: QTreeWidgetItem, line: _Line) -> None:
        """Add a label and its value to a group. The tool tip contains the help text."""
        item = QTreeWidgetItem(group)
        self._items.append(item)
        item.setData(0, _LABEL, line.label)
        item.setData(0, _VALUE, line.value)
        item.setToolTip(0, f"{line.label}: {line.value}\n{line.help_text}")
        item.setToolTip(1, line.value)
        item.setTextAlignment(1, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        self._set_texts(item)

    def clear(self) -> None:
        self._items = []
        super().clear()

    def fit(self) -> None:
        """Fit the columns to the labels and to the view. In a narrow view, values are in the column of the labels."""
        metrics = self.fontMetrics()
        label_width = max((metrics.horizontalAdvance(item.data(0, _LABEL)) for item in self._items), default=0)
        width = 2 * self.indentation() + label_width + theme.scale_pixels(_GAP)
        is_stacked = width + theme.scale_pixels(_VALUE_WIDTH) > self.viewport().width()
        if is_stacked != self._is_stacked:
            self._is_stacked = is_stacked
            self.setColumnHidden(1, is_stacked)
            for item in self._items:
                self._set_texts(item)
        self.setColumnWidth(0, self.viewport().width() if is_stacked else width)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.fit()

    def _set_texts(self, item: QTreeWidgetItem) -> None:
        """Set the texts of an item: label and value in two columns, or both in the first one if stacked."""
        label, value = item.data(0, _LABEL), item.data(0, _VALUE)
        item.setText(0, f"{label}\n\u2003{value}" if self._is_stacked else label)
        item.setText(1, value)


class RunSettingsView(QWidget):
    """View of a run's settings: those that differ from their defaults first, then the others.

    Signals:
        requested(Job): the user wants to put these settings into the form for a new job.
    """

    requested = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.job: Job | None = None
        styled(self, "panel", name=tr("Settings of the run"))
        self.tree = styled(SettingsTree(), "settings", name=tr("Settings of the run"))
        self.use = push_button(
            tr("Use these settings"),
            self._request,
            tip=tr("Put them into the form of the new job"),
            description=tr("Put the settings of this run into the form of the new job"),
        )
        self._stack = FrontStack()
        self._stack.addWidget(EmptyState(tr("The settings of this run aren't known yet.")))
        self._stack.addWidget(self.tree)
        title = heading_label(tr("Settings of this run"))
        self.setLayout(vbox(title, (self._stack, 1), hbox(self.use, 1), margins=(14, 10, 14, 10)))
        self._show_settings(None)

    def show_job(self, job: Job | None) -> None:
        """Show the settings of `job`, or a hint if they are unknown."""
        if job != self.job:
            self._show_settings(job)

    def _show_settings(self, job: Job | None) -> None:
        """Show the changed settings and the defaults of `job`, or a hint if it is None."""
        self.job = job
        self.tree.clear()
        self.use.setEnabled(job is not None)
        self._stack.setCurrentIndex(int(job is not None))
        if job is None:
            return
        changed = changed_fields(job)
        changed_lines = [*_list_field_lines(job, changed), *_list_option_lines(job)]
        self._add_group(tr("Changed"), changed_lines).setExpanded(True)
        self._add_group(tr("Defaults"), _list_field_lines(job, [name for name in FIELDS if name not in changed]))
        self.tree.fit()

    def _add_group(self, title: str, lines: list[_Line]) -> QTreeWidgetItem:
        """Add a collapsed group of labels, values and help texts."""
        group = QTreeWidgetItem(self.tree, [f"{title} ({len(lines)})"])
        group.setFirstColumnSpanned(True)
        font = QFont(self.tree.font())
        font.setWeight(QFont.Weight.DemiBold)
        group.setFont(0, font)
        for line in lines:
            self.tree.add(group, line)
        return group

    def _request(self) -> None:
        """Request to put the displayed settings into the form for a new job."""
        if self.job is not None:
            self.requested.emit(self.job)


def _list_field_lines(job: Job, names: Iterable[str]) -> list[_Line]:
    """Return the lines of the fields with these names."""
    return [_Line(FIELDS[name].label, format_job_value(name, job.value(name)), FIELDS[name].help) for name in names]


def _list_option_lines(job: Job) -> list[_Line]:
    """Return the lines of the options that are set. An option that isn't known anymore has its name as label."""
    fields = option_fields(job) if job.options else {}
    lines = []
    for name, value in job.options.items():
        label, help_text = (fields[name].label, fields[name].help) if name in fields else (name, "")
        lines.append(_Line(label, format_job_value("", value), help_text))
    return lines
