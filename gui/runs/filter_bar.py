"""Search field and filters for the list of runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable

from PySide6.QtCore import QSignalBlocker, QTimer, Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QWidget

from engine.runs.folder import RunSummary
from gui.format import localized
from gui.runs.table import RunFilter
from gui.titles import model_title, strategy_title
from gui.translation import tr
from gui.widgets.buttons import styled, tool_button
from gui.widgets.editors import ComboBox
from gui.widgets.labels import labeled
from gui.widgets.layouts import FlowLayout

_DAY_S = 86_400.0
_PERIODS = (
    (tr("Any"), None),
    (tr("Last 24 hours"), 1.0),
    (tr("Last 7 days"), 7.0),
    (tr("Last 30 days"), 30.0),
    (tr("Last year"), 365.0),
)
_TYPING_MS = 120
"""Milliseconds without typing after which the search is applied."""

_MIN_CHARACTERS = 9
"""Minimum number of characters of a choice that fit into a filter."""


class FilterBar(QWidget):
    """Search field and filters. The page places the buttons `favorites` and `clear` elsewhere.

    Signals:
        changed(RunFilter): the user has changed the filter.
    """

    changed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.text = styled(QLineEdit(clearButtonEnabled=True), name=tr("Search runs"))
        self.text.setPlaceholderText(tr("Name, model, tag, notes…"))
        self.text.setMinimumWidth(190)
        self.state = _create_filter("state")
        self.model = _create_filter("model")
        self.strategy = _create_filter("strategy")
        self.tag = _create_filter("tag")
        self.period = _create_filter("start")
        self.period.clear()
        for title, days in _PERIODS:
            self.period.addItem(title, days)
        self._combos = (self.state, self.model, self.strategy, self.tag, self.period)
        self.favorites = tool_button(text=tr("Favorites"), tip=tr("Show only favorites"))
        self.favorites.setCheckable(True)
        self.clear = tool_button(text=tr("Show all"), tip=tr("Clear the search and all filters"))
        self._typing_timer = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._emitted_filter = RunFilter()  # filter that was emitted last
        self._tag_row = labeled(tr("Tag"), self.tag)
        self._lay_out()
        self._typing_timer.timeout.connect(self._emit_filter)
        self.text.textChanged.connect(lambda _text: self._typing_timer.start())
        self.text.returnPressed.connect(self._emit_filter)
        for combo in self._combos:
            combo.currentIndexChanged.connect(self._emit_filter)
        self.favorites.toggled.connect(self._emit_filter)
        self.clear.clicked.connect(self.reset)

    def run_filter(self) -> RunFilter:
        """Return the filter that is set. A period is counted back from the current time."""
        days = self.period.currentData()
        return RunFilter(
            text=self.text.text().strip(),
            state=self.state.currentData() or "",
            model=self.model.currentData() or "",
            strategy=self.strategy.currentData() or "",
            tag=self.tag.currentData() or "",
            favorites=self.favorites.isChecked(),
            since=time.time() - days * _DAY_S if days is not None else None,
        )

    def set_runs(self, runs: Collection[RunSummary]) -> None:
        """Offer the values that occur in `runs`, with their counts. The current choices don't change."""
        states = Counter(run.state for run in runs).most_common()
        _set_choices(self.state, [(f"{state.capitalize()} ({localized(count)})", state) for state, count in states])
        _set_choices(self.model, _make_choices_with_counts((run.model for run in runs), model_title))
        _set_choices(self.strategy, _make_choices_with_counts((run.strategy for run in runs), strategy_title))
        _set_choices(self.tag, _make_choices_with_counts((tag for run in runs for tag in run.tags), str))
        self._tag_row.setVisible(self.tag.count() > 1)

    def show_interrupted(self) -> None:
        """Show only interrupted runs."""
        self.reset()
        self.state.setCurrentIndex(max(0, self.state.findData("interrupted")))

    def reset(self) -> None:
        """Clear the search and all filters."""
        self.text.clear()
        for combo in self._combos:
            combo.setCurrentIndex(0)
        self.favorites.setChecked(False)
        self._emit_filter()

    def _lay_out(self) -> None:
        row = FlowLayout(self, spacing=8)
        for widget in (
            labeled(tr("&Search"), self.text),
            labeled(tr("State"), self.state),
            labeled(tr("Model"), self.model),
            labeled(tr("Strategy"), self.strategy),
            self._tag_row,
            labeled(tr("Started"), self.period),
        ):
            row.addWidget(widget)
        policy = self.sizePolicy()
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.clear.hide()
        self._tag_row.hide()

    def _emit_filter(self) -> None:
        """Emit the current filter if it differs from the one that was emitted last."""
        self._typing_timer.stop()
        run_filter = self.run_filter()
        self.clear.setVisible(run_filter != RunFilter())
        if run_filter != self._emitted_filter:
            self._emitted_filter = run_filter
            self.changed.emit(run_filter)


def _create_filter(criterion: str) -> QComboBox:
    """Create a filter with the single choice "Any", whose value is "". `criterion` is part of its accessible name."""
    combo = styled(ComboBox(), name=tr("Runs by {criterion}").format(criterion=criterion))
    combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    combo.setMinimumContentsLength(_MIN_CHARACTERS)
    combo.addItem(tr("Any"), "")
    return combo


def _make_choices_with_counts(values: Iterable[str], title: Callable[[str], str]) -> list[tuple[str, str]]:
    """Return each of `values` once, sorted, with a title such as "ResNet-18 (3)"."""
    return sorted((f"{title(value)} ({localized(count)})", value) for value, count in Counter(values).items())


def _set_choices(combo: QComboBox, choices: list[tuple[str, str]]) -> None:
    """Replace all entries of `combo` except the first by `choices`.

    The selected choice remains selected if it still exists. Otherwise, the first entry is selected, and
    `currentIndexChanged` is emitted.
    """
    if choices == [(combo.itemText(index), combo.itemData(index)) for index in range(1, combo.count())]:
        return
    selected = combo.currentData()
    with QSignalBlocker(combo):
        while combo.count() > 1:
            combo.removeItem(combo.count() - 1)
        for text, value in choices:
            combo.addItem(text, value)
        combo.setCurrentIndex(max(0, combo.findData(selected)))
    if combo.currentData() != selected:
        combo.currentIndexChanged.emit(combo.currentIndex())
