"""Row of an alert rule: a check box, a summary, and collapsible editors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec
from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QCheckBox, QGridLayout, QLabel, QSizePolicy, QWidget

from engine.contract.problems import Problem
from gui.alerts.rules import Kind, Rule, describe_rule, find_problems
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import create_fold_button, create_reset_button, styled
from gui.widgets.editors import FloatEditor
from gui.widgets.labels import ProblemLabel, WrappingLabel, muted_label
from gui.widgets.layouts import vbox
from gui.widgets.tab_order import order_tabs

_MINUTES_FROM_S = 300.0
"""Minimum default duration, in seconds, of a rule whose duration is edited in minutes instead of seconds."""
_EDITOR_WIDTH = 240
_SUMMARY_BELOW = 480
"""Width in pixels, at a text size of 100%, below which a row shows the summary below the name."""


class RuleRow(QWidget):
    """Row of an alert rule.

    Signals:
        edited(Rule): the user has changed the rule, and the new rule is valid.
    """

    edited = Signal(object)

    def __init__(self, kind: Kind, rule: Rule) -> None:
        super().__init__()
        self.kind = kind
        self._rule = rule
        self._devices: dict[str, str] = {}
        self.fold = create_fold_button("flat", name=tr("Edit the rule {title}").format(title=kind.title))
        self.fold.toggled.connect(self._show_editors)
        self.on = styled(QCheckBox(kind.title), tip=kind.meaning)
        self.on.toggled.connect(lambda on: self._change(msgspec.structs.replace(self._rule, on=on)))
        self.summary = WrappingLabel(name="muted")
        self.reset = create_reset_button(
            lambda: self._change(kind.default),
            tr("Reset the rule {title}").format(title=kind.title),
            tr("Back to the default"),
        )
        self.editors: RuleEditors | None = None
        self._head = QGridLayout()
        self._head.setHorizontalSpacing(6)
        self._head.setVerticalSpacing(0)
        self._head.setColumnStretch(2, 1)
        self._head.addWidget(self.fold, 0, 0)
        self._head.addWidget(self.on, 0, 1)
        self._head.addWidget(self.reset, 0, 3)
        self._layout = vbox(self._head, spacing=2)
        self.setLayout(self._layout)
        self._arrange()
        self._show_rule()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._arrange()

    def _arrange(self) -> None:
        """Show the summary next to the name or, in a narrow row, below it."""
        if self.width() < theme.scale_pixels(_SUMMARY_BELOW):
            self._head.addWidget(self.summary, 1, 1, 1, 2)
        else:
            self._head.addWidget(self.summary, 0, 2)

    def show_rule(self, rule: Rule) -> None:
        """Show `rule`. If it is already shown, unfinished input is preserved."""
        if rule != self._rule:
            self._rule = rule
            self._show_rule()

    def _show_rule(self) -> None:
        """Show the rule in the check box, the summary and the editors, without emitting `edited`."""
        rule = self._rule
        self.on.setChecked(rule.on)  # `_change` ignores it, because the rule is already stored
        text = describe_rule(rule) if rule.on else tr("off · {rule}").format(rule=describe_rule(rule))
        self.summary.setText(text)
        self.on.setAccessibleDescription(f"{text}. {self.kind.meaning}")
        self.reset.setVisible(rule != self.kind.default)
        if self.editors is not None:
            self.editors.show_rule(rule)

    def set_devices(self, devices: Mapping[str, str]) -> None:
        """Set the titles of the devices that can be selected, by key."""
        if devices != self._devices:
            self._devices = dict(devices)
            if self.editors is not None:
                self.editors.set_devices(self._devices)

    def _show_editors(self, opened: bool) -> None:
        """Show or hide the editors, which are created when they are first shown."""
        if self.editors is None:
            self.editors = RuleEditors(self.kind, self._rule, self._devices)
            self.editors.edited.connect(self._change)
            self._layout.addWidget(self.editors)
            order_tabs(self, (self.fold, self.on, self.reset, self.editors))
        self.editors.setVisible(opened)

    def _change(self, rule: Rule) -> None:
        """Show a rule that the user has edited, and emit it."""
        if rule != self._rule:
            self.show_rule(rule)
            self.edited.emit(rule)


class RuleEditors(QWidget):
    """Editors for the fields of a rule. Valid text takes effect on Enter, or when its field loses the focus.

    Signals:
        edited(Rule): the user has changed the rule.
    """

    edited = Signal(object)

    def __init__(self, kind: Kind, rule: Rule, devices: Mapping[str, str]) -> None:
        super().__init__()
        self._kind = kind
        self._rule = rule
        self._is_in_minutes = kind.default.for_s >= _MINUTES_FROM_S  # unit of the duration editor
        self._unit_s = 60.0 if self._is_in_minutes else 1.0
        self._problems: dict[str, ProblemLabel] = {}  # by field
        self._boxes: dict[str, QCheckBox] = {}  # by key of the device
        self._titles = dict(devices)  # titles of the known devices by key
        self._grid = QGridLayout(self)
        self._grid.setContentsMargins(30, 2, 4, 10)
        self._grid.setHorizontalSpacing(8)
        self._grid.setVerticalSpacing(4)
        self._grid.setColumnStretch(2, 1)
        meaning = muted_label(kind.meaning, word_wrap=True)
        meaning.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
        self._grid.addWidget(meaning, 0, 0, 1, 3)
        self.threshold = self._add_threshold_editor()
        self.lasts = self._add_duration_editor()
        self.notify = QCheckBox(tr("Desktop notification"))
        self.notify.setAccessibleName(tr("Desktop notification for {title}").format(title=kind.title))
        self.notify.toggled.connect(self._commit)
        self._grid.addWidget(self.notify, 5, 1, 1, 2)
        self.all_devices = QCheckBox(tr("All devices"))
        self.all_devices.setAccessibleName(tr("All devices for {title}").format(title=kind.title))
        self.all_devices.toggled.connect(self._commit)
        self._list = vbox(spacing=0)
        if kind.has_devices:
            self._grid.addWidget(QLabel(tr("Devices")), 6, 0)
            self._grid.addWidget(self.all_devices, 6, 1, 1, 2)
            self._grid.addLayout(self._list, 7, 1, 1, 2)
            self._add_problem_label("devices", 8)
        self.show_rule(rule)

    def show_rule(self, rule: Rule) -> None:
        """Show `rule` in all editors, and the problems with it."""
        self._rule = rule
        if self.threshold is not None:
            self.threshold.set_value(rule.threshold)
        if self.lasts is not None:
            self.lasts.set_value(rule.for_s / self._unit_s)
        with QSignalBlocker(self.notify):
            self.notify.setChecked(rule.notify)
        self._show_devices()
        self._show_problems()

    def set_devices(self, devices: Mapping[str, str]) -> None:
        self._titles = dict(devices)
        self._show_devices()

    def _add_threshold_editor(self) -> FloatEditor | None:
        """Add the editor of the limit. Return None if the kind has no limit."""
        threshold = self._kind.threshold
        if threshold is None:
            return None
        label = tr("Below") if threshold.below else tr("At or above")
        editor = FloatEditor(optional=threshold.device_limit is not None, empty=threshold.device_limit_name)
        self._add_editor_row(editor, "threshold", 1, label, threshold.unit)
        return editor

    def _add_duration_editor(self) -> FloatEditor | None:
        """Add the editor of the duration. Return None for events, which have none."""
        if self._kind.event:
            return None
        editor = FloatEditor()
        self._add_editor_row(editor, "for_s", 3, tr("For at least"), "min" if self._is_in_minutes else "s")
        return editor

    def _add_editor_row(self, editor: FloatEditor, field: str, row: int, caption: str, unit: str) -> None:
        """Add a row for a field of the rule: label, editor and unit, with a label for problems below."""
        theme.scale_with_text(editor.setFixedWidth, _EDITOR_WIDTH)
        editor.control.setAccessibleName(
            tr("{rule}: {field}, in {unit}").format(rule=self._kind.title, field=caption.lower(), unit=unit)
        )
        editor.edited.connect(self._show_problems)
        editor.line.editingFinished.connect(self._commit)
        label = QLabel(caption)
        label.setBuddy(editor.control)
        self._grid.addWidget(label, row, 0)
        self._grid.addWidget(editor, row, 1)
        self._grid.addWidget(QLabel(unit), row, 2)
        self._add_problem_label(field, row + 1)

    def _add_problem_label(self, field: str, row: int) -> None:
        self._problems[field] = ProblemLabel()
        self._grid.addWidget(self._problems[field], row, 1, 1, 2)

    def _read_rule(self) -> Rule:
        """Return the rule in the editors, even if it is invalid."""
        covers_all = self.all_devices.isChecked() or not self._kind.has_devices
        return msgspec.structs.replace(
            self._rule,
            threshold=_parse_number(self.threshold.value()) if self.threshold is not None else None,
            for_s=(_parse_number(self.lasts.value()) or 0.0) * self._unit_s if self.lasts is not None else 0.0,
            notify=self.notify.isChecked(),
            devices=None if covers_all else tuple(key for key, box in self._boxes.items() if box.isChecked()),
        )

    def _show_problems(self) -> tuple[Problem, ...]:
        """Show the problems with the edited rule at their fields, and return them."""
        found = find_problems(self._read_rule())
        for field, label in self._problems.items():
            label.show_problems(tuple(problem for problem in found if problem.field == field))
        for field, editor in (("threshold", self.threshold), ("for_s", self.lasts)):
            if editor is not None:
                messages = " ".join(str(problem) for problem in found if problem.field == field)
                editor.show_severity("error" if messages else "")
                editor.control.setAccessibleDescription(messages)
        return found

    def _commit(self) -> None:
        """Emit the edited rule if it is valid and has changed."""
        self._show_devices_list()
        if not self._show_problems() and self._read_rule() != self._rule:
            self.edited.emit(self._read_rule())

    def _show_devices(self) -> None:
        """Show a check box for each device, including missing devices that the rule covers."""
        if not self._kind.has_devices:
            return
        covered = self._rule.devices or ()
        self._create_boxes(covered)
        with QSignalBlocker(self.all_devices):
            self.all_devices.setChecked(self._rule.devices is None)
        for key, box in self._boxes.items():
            with QSignalBlocker(box):
                box.setChecked(key in covered)
        self._show_devices_list()

    def _create_boxes(self, covered: Sequence[str]) -> None:
        """Add, order and remove check boxes so that there is one for each known or `covered` device."""
        known_keys = sorted(self._titles, key=lambda key: (len(self._titles[key]), self._titles[key]))  # GPU 2, GPU 10
        titles = {key: self._titles[key] for key in known_keys}
        titles |= {key: tr("{device} (not here)").format(device=key) for key in covered if key not in titles}
        for key in [key for key in self._boxes if key not in titles]:
            self._boxes.pop(key).deleteLater()
        for index, (key, title) in enumerate(titles.items()):
            if key not in self._boxes:
                self._boxes[key] = QCheckBox()
                self._boxes[key].toggled.connect(self._commit)
            self._list.insertWidget(index, self._boxes[key])
            self._boxes[key].setText(title)
            self._boxes[key].setAccessibleName(tr("{device} for {rule}").format(device=title, rule=self._kind.title))
        for before, after in pairwise((self.all_devices, *(self._boxes[key] for key in titles))):
            QWidget.setTabOrder(before, after)

    def _show_devices_list(self) -> None:
        """Show the check boxes of single devices, unless the rule covers all of them."""
        for box in self._boxes.values():
            box.setVisible(not self.all_devices.isChecked())


def _parse_number(value: float | str | None) -> float | None:
    """Convert the value of a `FloatEditor` to a number, or to NaN if it is an invalid text. None means no value."""
    return math.nan if isinstance(value, str) else value
