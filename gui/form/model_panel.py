"""Popup with the models of a task and facts about them, which can be searched, filtered and sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from PySide6.QtCore import QEvent, QObject, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QFont, QGuiApplication, QKeyEvent
from PySide6.QtWidgets import QAbstractItemView, QFrame, QLineEdit, QWidget

from engine.contract.catalogue import Catalogue, ModelEntry, command_if_missing, weights_of
from engine.contract.job import Job
from engine.contract.weights import Weights, find_weights
from engine.runs.estimates import Estimate
from gui.format import format_roughly, localized, millions, size
from gui.sources.background import in_background, reraise
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.column_model import Index
from gui.widgets.editors import ComboBox, fill_combo_box
from gui.widgets.labels import caption, field_label
from gui.widgets.layouts import hbox, vbox
from gui.widgets.row_model import Column, RowModel, RowTable

_SIZE = QSize(920, 520)
_WIDEST = (220, 130, 100, 160, 240)
"""Maximum widths of all columns except the last one, in pixels."""
_ROW_LEADING = 16
"""Space in pixels above and below the text in a row. At a text size of 100%, rows are 32 pixels high."""
_ALL = ""


class WeightsState(NamedTuple):
    """Pretrained weights of a model: display text, bytes to download (infinite without weights), and license."""

    text: str
    missing_bytes: float
    license: str = ""


@dataclass(frozen=True)
class OfferedModel:
    """Model in the panel's list of models.

    Attributes:
        command: Command that installs missing packages, or "" if none are missing.
        weights: State of the weights, or None until it has been looked up.
        estimate: Time and memory of the job with this model, or None if unknown.
    """

    entry: ModelEntry
    is_recommended: bool = False
    command: str = ""
    weights: WeightsState | None = None
    estimate: Estimate | None = None


_COLUMNS: tuple[Column[OfferedModel], ...] = (
    Column(tr("Model"), lambda row: row.entry.title, lambda row: row.entry.title.lower()),
    Column(tr("Family"), lambda row: row.entry.family, lambda row: row.entry.family.lower()),
    Column(
        tr("Parameters"), lambda row: millions(row.entry.parameters), lambda row: row.entry.parameters, is_numeric=True,
        help=tr("Of the full model, with the classes of its pretrained weights"),
    ),
    Column(
        tr("Weights"), lambda row: row.weights.text if row.weights is not None else "…",
        lambda row: row.weights.missing_bytes if row.weights is not None else None, help=tr("Pretrained weights"),
    ),
    Column(
        tr("Published accuracy"), lambda row: row.entry.published, lambda row: _parse_accuracy(row.entry.published),
        help=tr("Accuracy of the pretrained weights on the data that they were trained for, and its source"),
    ),
    Column(
        tr("Estimate"), lambda row: _format_estimate(row.estimate),
        lambda row: row.estimate.seconds if row.estimate is not None else None,
        help=tr("Time and memory of this job on the selected devices, from past runs"),
    ),
)  # fmt: skip


_ACCURACY = 4
"""Index of the column with accuracies."""


class OfferedModels(RowModel[OfferedModel]):
    """Item model of the list of models. Recommended models are always first."""

    columns = _COLUMNS

    def key_of(self, row: OfferedModel) -> str:
        return row.entry.id

    def sorted_rows(self, rows: Iterable[OfferedModel]) -> list[OfferedModel]:
        return sorted(super().sorted_rows(rows), key=lambda row: not row.is_recommended)

    def cell_data(self, row: OfferedModel, column: int, role: int) -> Any:
        """Return a bold font for the name of a recommended model, a model's tool tip, or None, depending on `role`."""
        if role == Qt.ItemDataRole.FontRole and row.is_recommended and column == 0:
            font = QFont(QGuiApplication.font())
            font.setBold(True)
            return font
        if role == Qt.ItemDataRole.ToolTipRole:
            return describe_model(row)
        return None

    def flags(self, index: Index) -> Qt.ItemFlag:
        """Return the flags of an item, which is disabled if packages of its model aren't installed."""
        flags = super().flags(index)
        row = self.rows[index.row()] if index.isValid() else None
        return flags & ~Qt.ItemFlag.ItemIsEnabled if row is not None and row.command else flags


class ModelPanel(QFrame):
    """Popup with the models of a task.

    The focus stays in the search field: Up, Down, Page Up and Page Down move through the list, Enter selects, Escape
    closes.

    Signals:
        chosen(str): the user has selected the model with this id.
    """

    chosen = Signal(str)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup)
        styled(self, "palette", name=tr("Models"))
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._offered: list[OfferedModel] = []
        self.search = styled(QLineEdit(clearButtonEnabled=True), name=tr("Search models"))
        self.search.setPlaceholderText(tr("Search models…"))
        self.search.setAcceptDrops(False)  # a dropped folder belongs to the window
        self.search.textChanged.connect(lambda _text: self._filter())
        self.search.installEventFilter(self)
        self.family = styled(ComboBox(), name=tr("Family"))
        self.family.currentIndexChanged.connect(lambda _index: self._filter())
        self.order = styled(ComboBox(), name=tr("Order"))
        fill_combo_box(self.order, [(column.title, number) for number, column in enumerate(_COLUMNS)], 0)
        self.order.currentIndexChanged.connect(lambda _index: self._sort(self.order.currentData()))
        self.model = OfferedModels(self)
        self.table = RowTable(self.model, tr("Models"), leading=_ROW_LEADING)
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.table.setSortingEnabled(True)
        self.table.sortByColumn(0, Qt.SortOrder.AscendingOrder)
        self.table.horizontalHeader().setStretchLastSection(True)
        self.table.clicked.connect(lambda index: self._choose(index.row()))
        self.table.opened.connect(lambda index: self._choose(index.row()))
        self.table.selectionModel().currentRowChanged.connect(lambda *_: self._describe())
        self.about = caption()
        head = hbox((self.search, 1), self.family, field_label(tr("&Order"), self.order), self.order)
        self.setLayout(vbox(head, (self.table, 1), self.about, margins=(10, 10, 10, 8)))

    def offer(self, models: Sequence[ModelEntry], recommended: Sequence[str], current: str) -> None:
        """List models, with the `recommended` ids first, and select the `current` one."""
        self._offered = [
            OfferedModel(entry, entry.id in recommended, command_if_missing(entry.extra)) for entry in models
        ]
        self.search.clear()
        families = sorted({entry.family for entry in models})
        fill_combo_box(self.family, [(tr("All families"), _ALL), *((family, family) for family in families)], _ALL)
        self._filter()
        self._select(self.model.position(current) or 0)

    def request_facts(
        self,
        models: Sequence[ModelEntry],
        catalogue: Catalogue,
        encoder: str,
        estimate: Callable[[Mapping[str, int]], Callable[[], Mapping[str, Estimate]]],
    ) -> None:
        """Look up the weights and the estimates of `models` on a worker thread, and show them once they are known.

        Args:
            models: Models to look up, which the panel already lists.
            catalogue: Catalogue that describes the weights.
            encoder: Id of the encoder, for models that need one.
            estimate: Called with the default image size of each model, by id. It returns a function that computes the
                estimates by model id, which is called on the worker thread.
        """
        estimates = estimate({entry.id: entry.image_size for entry in models})
        in_background(
            lambda: (describe_all_weights(models, catalogue, encoder), estimates()),
            self,
            lambda facts: self.set_facts(*facts),
            reraise,
        )

    def set_facts(self, weights: Mapping[str, WeightsState], estimates: Mapping[str, Estimate]) -> None:
        """Show weights and estimates that have become known, by model id. Facts about other models don't change."""
        self._offered = [
            replace(
                row,
                weights=weights.get(row.entry.id, row.weights),
                estimate=estimates.get(row.entry.id, row.estimate),
            )
            for row in self._offered
        ]
        self._filter()
        self._fit()

    def open_below(self, field: QWidget) -> None:
        """Open the popup below `field`, but within the screen, and focus the search field."""
        screen = field.screen().availableGeometry()
        size = QSize(theme.scale_pixels(_SIZE.width()), theme.scale_pixels(_SIZE.height()))
        self.setFixedSize(size.boundedTo(screen.size()))
        corner = field.mapToGlobal(QPoint(0, field.height()))
        left = max(screen.left(), min(corner.x(), screen.right() - self.width()))
        self.move(left, max(screen.top(), min(corner.y(), screen.bottom() - self.height())))
        self.show()
        self._fit()
        self.search.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Move through the list, or choose a model, with keys in the search field. Return True for these keys."""
        if not isinstance(event, QKeyEvent) or event.type() != QEvent.Type.KeyPress:
            return super().eventFilter(watched, event)
        row, last = self.table.currentIndex().row(), self.model.count() - 1
        page = max(1, self.table.viewport().height() // self.table.verticalHeader().defaultSectionSize() - 1)
        steps = {Qt.Key.Key_Down: 1, Qt.Key.Key_Up: -1, Qt.Key.Key_PageDown: page, Qt.Key.Key_PageUp: -page}
        key = Qt.Key(event.key())
        if key in steps:
            self._select(min(max(0, row + steps[key]), last))
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self._choose(row)
        else:
            return super().eventFilter(watched, event)
        return True

    def _filter(self) -> None:
        """Show the models that contain all typed words and belong to the selected family, and select one of them."""
        terms, family = self.search.text().lower().split(), self.family.currentData()
        current = self.table.currentIndex().row()
        selected_id = self.model.rows[current].entry.id if 0 <= current < self.model.count() else ""
        matches = [
            row
            for row in self._offered
            if family in (_ALL, row.entry.family) and all(term in _make_search_text(row.entry) for term in terms)
        ]
        self.model.set_rows(self.model.sorted_rows(matches))
        position = self.model.position(selected_id)
        # While the user is searching, select the first match, which Enter then chooses.
        self._select(position if position is not None and not terms else 0)

    def _sort(self, column: int) -> None:
        """Sort by a column: accuracies from high to low, other values from low to high."""
        is_best_first = column == _ACCURACY
        self.table.sortByColumn(column, Qt.SortOrder.DescendingOrder if is_best_first else Qt.SortOrder.AscendingOrder)

    def _select(self, row: int) -> None:
        """Select the model at this row, if it exists, and describe it."""
        if 0 <= row < self.model.count():
            self.table.select([row])
        self._describe()

    def _choose(self, row: int) -> None:
        """Close the popup and emit `chosen` with the id of the model at this row, unless its packages are missing."""
        if 0 <= row < self.model.count() and not self.model.rows[row].command:
            self.hide()
            self.chosen.emit(self.model.rows[row].entry.id)

    def _describe(self) -> None:
        """Show the facts about the selected model, or what to do if none matches."""
        row = self.table.currentIndex().row()
        if not self.model.count():
            self.about.setText(tr("No model matches. Close this list and type the name of any timm model, or a file."))
        elif 0 <= row < self.model.count():
            self.about.setText(describe_model(self.model.rows[row]))

    def _fit(self) -> None:
        """Fit the columns to their contents, up to the maximum widths."""
        for column, widest in enumerate(_WIDEST):
            self.table.setColumnWidth(column, min(self.table.content_width(column), theme.scale_pixels(widest)))


def _make_search_text(entry: ModelEntry) -> str:
    """Return the text that the panel's search considers: title, id, family and published accuracy, in lower case."""
    return f"{entry.title} {entry.id} {entry.family} {entry.published}".lower()


def _parse_accuracy(published: str) -> tuple[str, float] | None:
    """Split a text such as "ImageNet 80.9% top-1" into ("ImageNet ", 80.9). Return None if it contains no number."""
    for word in published.split():
        try:
            return published.partition(word)[0], float(word.removesuffix("%"))
        except ValueError:
            continue
    return None


def _format_estimate(estimate: Estimate | None) -> str:
    """Format an estimate, as in "about 12 min, 9.0 GiB", or return "" for None."""
    if estimate is None:
        return ""
    time = format_roughly(estimate.seconds) if estimate.seconds is not None else ""
    return ", ".join(filter(None, (time, size(estimate.memory_bytes) if estimate.memory_bytes else "")))


def describe_model(row: OfferedModel) -> str:
    """Return a line with more facts about a model than its row shows, such as its parameters and its license.

    For a model of a package that isn't installed, return the command that installs the package.
    """
    if row.command:
        return tr("Needs an extra package: {command}").format(command=row.command)
    entry = row.entry
    parts = (
        tr("Recommended") if row.is_recommended else "",
        entry.id,
        tr("{count} parameters").format(count=localized(entry.parameters)),
        tr("{size} px by default").format(size=entry.image_size) if entry.image_size else "",
        tr("weights: {license}").format(license=row.weights.license) if row.weights and row.weights.license else "",
        entry.published,
    )
    return " · ".join(filter(None, parts))


def describe_all_weights(models: Iterable[ModelEntry], catalogue: Catalogue, encoder: str) -> dict[str, WeightsState]:
    """Return the state of each model's weights on disk, by id.

    `encoder` is the id of the encoder, for models that need one.
    """
    return {
        entry.id: _describe_weights(weights_of(Job.from_fields(model=entry.id, encoder=encoder), catalogue))
        for entry in models
    }


def _describe_weights(weights: Weights | None) -> WeightsState:
    """Describe where a model's pretrained weights are. None means that it has none."""
    if weights is None:
        return WeightsState(tr("none"), float("inf"))
    if find_weights(weights).path:
        text = tr("included") if weights.is_included else tr("on this machine")
        return WeightsState(text, 0.0, weights.license_title)
    if not weights.bytes:
        return WeightsState(tr("to download"), 1e12, weights.license_title)  # sort weights of unknown size last
    text = tr("{size} to download").format(size=size(weights.bytes))
    return WeightsState(text, float(weights.bytes), weights.license_title)
