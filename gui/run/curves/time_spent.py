"""Step times of a run, its bottleneck, and a button that applies advice."""

from __future__ import annotations

from typing import NamedTuple, get_args

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QFontMetrics, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from engine.contract.events import Advice, Part, TimeSpent
from engine.contract.job import FIELDS
from gui.format import localized, milliseconds
from gui.sources.run_data import RunData
from gui.style import fills, theme
from gui.translation import tr
from gui.widgets.buttons import create_fold_button, push_button
from gui.widgets.labels import WrappingLabel
from gui.widgets.layouts import hbox, vbox


class TimeSpentView(QWidget):
    """View of the bottleneck of a run: advice, and a collapsible bar of the step time. It is hidden if there is no data.

    Signals:
        loader_workers_requested(int): the user wants the open run to use this number of loader workers.
        setting_requested(str, object): the user wants to set this job field to this value for the next run.
    """

    loader_workers_requested = Signal(int)
    setting_requested = Signal(str, object)

    def __init__(self) -> None:
        super().__init__()
        self._advice: Advice | None = None
        self._is_live = False  # True if the advice can be applied to the open run
        self._applied: Advice | None = None  # advice that the user has just applied
        self.bar = TimeBar()
        self.fold = create_fold_button(
            "fold", name=tr("Step time by part"), tip=tr("Show the parts of each step's time")
        )
        self.fold.toggled.connect(self.bar.setVisible)
        self.bar.hide()
        self.label = WrappingLabel()
        self.change = push_button(tr("Change"), self._request_setting)
        self.setLayout(vbox(hbox(self.fold, (self.label, 1), self.change), self.bar, spacing=5))
        self.reset()

    def reset(self) -> None:
        """Forget the advice and the step times, before another run or execution is shown."""
        self._advice = self._applied = None
        self._label_advice()
        self.bar.reset()
        self.hide()

    def show_data(self, data: RunData, is_active: bool) -> None:
        """Show the latest step times with the advice on them.

        If the run `is_active`, the button of the advice can change a setting of the run itself, otherwise of the form.
        """
        spent = data.time_spent
        if spent is None:
            return
        self.bar.show_time(spent)
        self._show_advice(spent.advice, is_active)
        self.show()

    def _show_advice(self, advice: Advice | None, is_active: bool) -> None:
        """Show the advice and its button.

        If the advice suggests another setting than the one that the button has applied, or if the run has ended since,
        the button can be pressed again.
        """
        is_live = advice is not None and advice.live and is_active
        if advice == self._advice and is_live == self._is_live:
            return
        applied = self._applied
        is_same_setting = (
            advice is not None
            and applied is not None
            and (advice.field, advice.value) == (applied.field, applied.value)
        )
        if is_live != self._is_live or not is_same_setting:
            self._applied = None
        self._advice, self._is_live = advice, is_live
        self._label_advice()

    def _label_advice(self) -> None:
        """Show the sentence and the button of the advice. Without advice, name the step times, and hide the button.

        The button changes the open run if the advice can be applied to it, otherwise the form.
        """
        advice = self._advice
        self.label.setText(advice.sentence if advice is not None else tr("Time of each step"))
        field = FIELDS.get(advice.field) if advice is not None else None
        if advice is None or field is None:
            self.change.hide()
            return
        if self._is_live:
            text, done = tr("Use {count} workers now").format(count=advice.value), tr("Requested")
            tip = tr("Set {field} to {value} in this run").format(field=field.label, value=advice.value)
        else:
            text, done = tr("Use next time"), tr("Set for the next run")
            tip = tr("Set {field} to {value} in the form").format(field=field.label, value=advice.value)
        self.change.setText(text if self._applied is None else done)
        self.change.setEnabled(self._applied is None)
        self.change.setToolTip(tip)
        self.change.setAccessibleDescription(tip)
        self.change.show()

    def _request_setting(self) -> None:
        """Request the advised setting: for the active run if its setting can be changed, otherwise for the next run."""
        advice = self._advice
        if advice is None:
            return
        self._applied = advice
        if self._is_live:
            self.loader_workers_requested.emit(int(advice.value))
        else:
            self.setting_requested.emit(advice.field, advice.value)
        self._label_advice()


ORDER: tuple[Part, ...] = get_args(Part)
TITLES: dict[Part, str] = {
    "data": tr("Data wait"),
    "transfer": tr("To the device"),
    "augment": tr("Augment"),
    "forward": tr("Forward"),
    "backward": tr("Backward"),
    "communication": tr("Communication"),
    "optimizer": tr("Optimizer"),
    "logging": tr("Logging"),
    "other": tr("Other"),
}
MEANINGS: dict[Part, str] = {
    "data": tr("Waiting for the next batch of images"),
    "transfer": tr("Copying images to the device"),
    "augment": tr("Augmenting and normalizing images on the device"),
    "forward": tr("The model's forward pass and the loss"),
    "backward": tr("The backward pass"),
    "communication": tr(
        "Reducing gradients, sending activations and waiting for other ranks, not overlapped with compute"
    ),
    "optimizer": tr("The optimizer's step"),
    "logging": tr("Logging metrics"),
    "other": tr("Unattributed"),
}
MIN_FRACTION = 0.0005
"""Minimum fraction of a step that is displayed. Smaller ones would appear as 0.0%."""

BAR_HEIGHT, GAP = 18, 6
"""Height of the bar, and distances between bar and legend and between swatch and title, in pixels."""
_LINE_HEIGHT, _SWATCH = 20, 13
"""Height of a line of the legend, and side of its swatch, in pixels at a text size of 100%."""
PAD = 12
"""Distance between the columns of the legend in pixels."""
_NUMBER_GAP = 8
"""Minimum distance between title and numbers of an entry in pixels."""


class _Entry(NamedTuple):
    """Entry of the legend. The last entry has no part and represents the full step."""

    part: Part | None
    rect: QRectF


def format_percent(fraction: float) -> str:
    """Format a fraction, as in "46%", or as in "2.4%" below ten percent."""
    return f"{100 * fraction:.0f}%" if fraction >= 0.0995 else f"{localized(100 * fraction, 1)}%"


def describe_part(spent: TimeSpent, part: Part) -> str:
    """Describe a part of a step, as in "Forward 3.1 ms, 38% of each step"."""
    seconds = spent.parts.get(part, 0.0)
    return tr("{part} {time}, {percent} of each step").format(
        part=TITLES[part], time=milliseconds(seconds), percent=format_percent(_compute_fraction(spent, part))
    )


def describe_time(spent: TimeSpent) -> str:
    """Describe the time of a step and of its parts for screen readers, the longest part first."""
    visible_parts = [part for part in ORDER if _compute_fraction(spent, part) >= MIN_FRACTION]
    parts = ". ".join(describe_part(spent, part) for part in sorted(visible_parts, key=lambda part: -spent.parts[part]))
    return tr("A step takes {step_s}. ").format(step_s=milliseconds(spent.step_s)) + f"{parts}."


class TimeBar(QWidget):
    """Bar with a segment for each part of a step. Segments differ in color and pattern.

    Parts that have occurred once remain in the legend, so that its entries don't move.
    """

    def __init__(self) -> None:
        super().__init__()
        self._time_spent: TimeSpent | None = None
        self._known_parts: set[Part] = set()
        self._hovered: Part | None = None
        self.setAccessibleName(tr("Time of a step"))
        self.setMouseTracking(True)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def reset(self) -> None:
        """Forget the step time and all legend entries, before another run is shown."""
        self._time_spent, self._known_parts, self._hovered = None, set(), None

    def show_time(self, spent: TimeSpent) -> None:
        """Show the time of a step. Parts that were once visible keep their legend entry."""
        if spent is self._time_spent:
            return
        self._time_spent = spent
        self._known_parts |= {part for part in ORDER if _compute_fraction(spent, part) >= MIN_FRACTION}
        self.setAccessibleDescription(describe_time(spent))
        self._fit_height()
        self.update()

    def segment(self, part: Part) -> QRectF:
        """Return the rectangle of the bar's segment for a part of a step. It is empty while the times are unknown."""
        spent = self._time_spent
        if spent is None:
            return QRectF()
        start = sum(_compute_fraction(spent, earlier) for earlier in ORDER[: ORDER.index(part)])
        fraction = _compute_fraction(spent, part)
        return QRectF(start * self.width(), 0, fraction * self.width(), BAR_HEIGHT)

    def entries(self) -> list[_Entry]:
        """Return the entries of the legend with their rectangles, in as many columns as fit."""
        advance = QFontMetrics(theme.with_tabular_digits(self.font())).horizontalAdvance
        is_slow = self._time_spent is not None and self._time_spent.step_s >= 1  # its times have more digits
        line_height = theme.scale_pixels(_LINE_HEIGHT)
        widest_numbers = "00,000 ms  0.0%" if is_slow else "00.0 ms  0.0%"
        other_width = theme.scale_pixels(_SWATCH) + GAP + _NUMBER_GAP + advance(widest_numbers)
        parts = [*(part for part in ORDER if part in self._known_parts), None]  # None is the full step
        needed = [other_width + advance(_format_part_title(part)) for part in parts]
        widths: list[int] = []  # of the columns, as many as fit
        for columns in range(len(parts), 0, -1):
            widths = [max(needed[column::columns]) for column in range(columns)]
            if sum(widths) + PAD * (columns - 1) <= self.width():
                break
        entries = []
        for number, part in enumerate(parts):
            row, column = divmod(number, len(widths))
            left = sum(widths[:column]) + PAD * column
            top = BAR_HEIGHT + GAP + row * line_height
            entries.append(_Entry(part, QRectF(left, top, widths[column], line_height)))
        return entries

    def part_at(self, point: QPoint) -> Part | None:
        """Return the part whose segment or legend entry is at `point`, or None."""
        position = QPointF(point)
        hovered = (part for part in ORDER if self.segment(part).contains(position))
        return next(hovered, None) or next(
            (entry.part for entry in self.entries() if entry.rect.contains(position)), None
        )

    def sizeHint(self) -> QSize:
        return QSize(320, int(self.entries()[-1].rect.bottom()))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_height()

    def changeEvent(self, event: QEvent) -> None:
        super().changeEvent(event)
        if event.type() == QEvent.Type.FontChange:
            self._fit_height()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        """Frame the part under the pointer, and explain it in a tool tip."""
        self._set_hovered(self.part_at(event.position().toPoint()))
        if self._time_spent is not None and self._hovered is not None:
            text = f"{describe_part(self._time_spent, self._hovered)}\n{MEANINGS[self._hovered]}"
            QToolTip.showText(event.globalPosition().toPoint(), text, self)
        else:
            QToolTip.hideText()

    def leaveEvent(self, event: QEvent) -> None:
        self._set_hovered(None)
        QToolTip.hideText()
        super().leaveEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a segment per part of a step, the legend, and a frame around the part under the pointer."""
        if self._time_spent is None:
            return
        scheme = theme.colors()
        painter = QPainter(self)
        painter.setFont(theme.with_tabular_digits(self.font()))
        painter.fillRect(QRectF(0, 0, self.width(), BAR_HEIGHT), QColor(scheme.raised))
        for part in ORDER:
            segment = self.segment(part)
            _fill_part(painter, segment, part)
            if segment.width() > 3:  # separate neighboring segments
                painter.fillRect(QRectF(segment.right() - 1, 0, 1, BAR_HEIGHT), QColor(scheme.panel))
        for entry in self.entries():
            self._draw_entry(painter, self._time_spent, entry)
        if self._hovered is not None:
            painter.setPen(QPen(QColor(scheme.text), 2))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(self.segment(self._hovered).adjusted(1, 1, -1, -1))

    def _draw_entry(self, painter: QPainter, spent: TimeSpent, entry: _Entry) -> None:
        """Draw a legend entry with its time: a part of the step, or the full step if `entry.part` is None."""
        scheme = theme.colors()
        rect, middle = entry.rect, Qt.AlignmentFlag.AlignVCenter
        side = theme.scale_pixels(_SWATCH)
        numbers = milliseconds(spent.step_s)
        if entry.part is not None:
            swatch = QRectF(rect.left(), rect.top() + (rect.height() - side) / 2, side, side)
            _fill_part(painter, swatch, entry.part)
            painter.setPen(QColor(scheme.border))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(swatch)
            percent = format_percent(_compute_fraction(spent, entry.part))
            numbers = f"{milliseconds(spent.parts.get(entry.part, 0.0))}  {percent}"
        painter.setPen(QColor(scheme.text if entry.part and entry.part == self._hovered else scheme.muted))
        painter.drawText(rect.adjusted(side + GAP, 0, 0, 0), middle, _format_part_title(entry.part))
        painter.setPen(QColor(scheme.text))
        painter.drawText(rect, middle | Qt.AlignmentFlag.AlignRight, numbers)

    def _set_hovered(self, part: Part | None) -> None:
        """Set the part under the pointer, which is framed, or None."""
        if part != self._hovered:
            self._hovered = part
            self.update()

    def _fit_height(self) -> None:
        """Fit the height to the rows of the legend, which depend on the width."""
        height = self.sizeHint().height()
        if height != self.height():
            self.setFixedHeight(height)


def _format_part_title(part: Part | None) -> str:
    """Return the title of a part of a step, or of the full step for None."""
    return TITLES[part] if part is not None else tr("Step")


def _fill_part(painter: QPainter, rect: QRectF, part: Part) -> None:
    """Fill a rectangle with the color and the pattern of a part."""
    ground, pattern = fills.make_part_fill(part)
    painter.fillRect(rect, ground)
    if pattern.style() != Qt.BrushStyle.NoBrush:
        painter.fillRect(rect, QBrush(pattern))


def _compute_fraction(spent: TimeSpent, part: Part) -> float:
    """Return a part's fraction of the step time, or 0 if it is unknown."""
    return spent.parts.get(part, 0.0) / spent.step_s if spent.step_s > 0 else 0.0
