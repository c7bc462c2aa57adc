"""The line above the list of runs in which it is searched and narrowed down."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QToolButton, QWidget

from engine.runs.folder import RunSummary
from gui.format import localised
from gui.runs.run_filter import RunFilter
from gui.titles import model_title, strategy_title
from gui.widgets.combo_box import ComboBox
from gui.widgets.flow_layout import FlowLayout
from gui.widgets.labels import labelled

_DAY_S = 86_400.0
_PERIODS = (
    ("Any", None),
    ("Last 24 hours", 1.0),
    ("Last 7 days", 7.0),
    ("Last 30 days", 30.0),
    ("Last year", 365.0),
)
_TYPING_MS = 120
"""A search waits for the next letter so long."""

_LETTERS, _MARGIN = 9, 24
"""How much of a choice can be read in its field; and pixels beside the choices in the list that opens."""

INTERRUPTED = "interrupted"
_Choices = list[tuple[str, str]]


class FilterBar(QWidget):
    """Its buttons `favourites` and `clear` are laid out by whoever has room for them.

    Signals: changed(Wanted) - other runs are asked for.
    """

    changed = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.text = QLineEdit(clearButtonEnabled=True)
        self.text.setPlaceholderText("Name, model, tag, notes …")
        self.text.setAccessibleName("Search runs")
        self.text.setToolTip("Shows runs that match all of these words (Ctrl+F)")
        self.text.setMinimumWidth(190)
        self.state = _combo("state")
        self.model = _combo("model")
        self.strategy = _combo("strategy")
        self.tag = _combo("tag")
        self.period = _combo("start")
        self.period.clear()
        for title, days in _PERIODS:
            self.period.addItem(title, days)
        self.favourites = QToolButton()
        self.favourites.setText("Favourites")
        self.favourites.setCheckable(True)
        self.favourites.setToolTip("Shows only favourites")
        self.clear = QToolButton()
        self.clear.setText("Show all")
        self.clear.setToolTip("Clears the search and all filters")
        self._waiting = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._waiting.timeout.connect(self._tell)
        self._told = RunFilter()
        self._tag_row = labelled("Tag", self.tag)
        row = FlowLayout(self, spacing=8)
        for widget in (
            labelled("&Search", self.text),
            labelled("State", self.state),
            labelled("Model", self.model),
            labelled("Strategy", self.strategy),
            self._tag_row,
            labelled("Started", self.period),
        ):
            row.addWidget(widget)
        policy = self.sizePolicy()
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.text.textChanged.connect(lambda _text: self._waiting.start())
        self.text.returnPressed.connect(self._tell)
        for combo in (self.state, self.model, self.strategy, self.tag, self.period):
            combo.currentIndexChanged.connect(self._tell)
        self.favourites.toggled.connect(self._tell)
        self.clear.clicked.connect(self.take_back)
        self.clear.hide()
        self._tag_row.hide()

    def wanted(self) -> RunFilter:
        """What the fields ask for now."""
        days = self.period.currentData()
        return RunFilter(
            text=self.text.text().strip(),
            state=self.state.currentData() or "",
            model=self.model.currentData() or "",
            strategy=self.strategy.currentData() or "",
            tag=self.tag.currentData() or "",
            favourites=self.favourites.isChecked(),
            since=time.time() - days * _DAY_S if days is not None else None,
        )

    def offer(self, runs: Collection[RunSummary]) -> None:
        """Offers what there is among `runs`, with how many; what is chosen stays chosen."""
        states = Counter(run.state for run in runs)
        _offer(
            self.state, [(f"{state.capitalize()} ({localised(count)})", state) for state, count in states.most_common()]
        )
        models = Counter(run.model for run in runs)
        _offer(
            self.model, sorted((f"{model_title(model)} ({localised(count)})", model) for model, count in models.items())
        )
        strategies = Counter(run.strategy for run in runs)
        _offer(
            self.strategy, sorted((f"{strategy_title(name)} ({localised(n)})", name) for name, n in strategies.items())
        )
        tags = Counter(tag for run in runs for tag in run.tags)
        _offer(self.tag, sorted((f"{tag} ({localised(count)})", tag) for tag, count in tags.items()))
        self._tag_row.setVisible(self.tag.count() > 1)

    def show_interrupted(self) -> None:
        """Asks for the interrupted runs alone."""
        self.take_back()
        self.state.setCurrentIndex(max(0, self.state.findData(INTERRUPTED)))

    def take_back(self) -> None:
        """Asks for all runs."""
        self.text.clear()
        for combo in (self.state, self.model, self.strategy, self.tag, self.period):
            combo.setCurrentIndex(0)
        self.favourites.setChecked(False)
        self._tell()

    def _tell(self) -> None:
        self._waiting.stop()
        wanted = self.wanted()
        self.clear.setVisible(wanted != RunFilter())
        if wanted != self._told:
            self._told = wanted
            self.changed.emit(wanted)


def _combo(what: str) -> QComboBox:
    combo = ComboBox()
    combo.setAccessibleName(f"Runs by {what}")
    combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    combo.setMinimumContentsLength(_LETTERS)
    combo.addItem("Any", "")
    return combo


def _offer(combo: QComboBox, choices: _Choices) -> None:
    """Replaces all but the first entry; what is chosen stays, as long as it is there."""
    if choices == [(combo.itemText(n), combo.itemData(n)) for n in range(1, combo.count())]:
        return
    chosen = combo.currentData()
    blocked = combo.blockSignals(True)
    while combo.count() > 1:
        combo.removeItem(combo.count() - 1)
    for text, value in choices:
        combo.addItem(text, value)
    combo.setCurrentIndex(max(0, combo.findData(chosen)))
    combo.blockSignals(blocked)
    combo.view().setMinimumWidth(combo.view().sizeHintForColumn(0) + _MARGIN)
    if combo.currentData() != chosen:
        combo.currentIndexChanged.emit(combo.currentIndex())
