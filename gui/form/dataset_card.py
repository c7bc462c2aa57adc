"""Card about the dataset folder: format, splits, classes, unreadable files and images, or possible interpretations."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QProgressBar, QScrollArea

from engine.contract.dataset import DatasetReport, Example
from gui.dataset import dataset_format
from gui.dataset.class_balance import ClassBalance
from gui.dataset.examples import ExampleList
from gui.dataset.reading_choices import ReadingChoices
from gui.format import localized
from gui.style import theme
from gui.translation import tr
from gui.widgets.buttons import create_fold_button, push_button, styled, tool_button
from gui.widgets.labels import ElidedLabel
from gui.widgets.layouts import hbox, vbox

THUMBNAIL = 56
_BARS_HEIGHT = 190


class DatasetCard(QFrame):
    """Card with the inspection results for the folder in the form.

    Signals:
        cancelled(): the user has cancelled the inspection.
        gallery_requested(int): the user wants to see large examples, starting at this index.
        chosen(Choice): the user has chosen how to read the folder.
    """

    cancelled = Signal()
    gallery_requested = Signal(int)
    chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._unreadable = ""  # text with the unreadable files, or "" if there are none
        self._summary = styled(ElidedLabel(), "heading")
        self._detail = styled(ElidedLabel(), "muted")
        self.readings = ReadingChoices(THUMBNAIL)
        self.readings.chosen.connect(self.chosen)
        self.readings.opened.connect(lambda: self.gallery_requested.emit(0))
        self._progress = styled(QProgressBar(), name=tr("Inspecting the folder"))
        self._progress.setMaximumHeight(14)
        self._progress.setTextVisible(False)
        self._cancel = push_button(tr("Cancel"), self.cancelled, name=tr("Cancel the inspection"))
        self.strip = ExampleList(THUMBNAIL, strip=True, captions=False)
        self.strip.opened.connect(self.gallery_requested)
        self.open = tool_button(
            lambda: self.gallery_requested.emit(max(0, self.strip.currentRow())), text=tr("Look closer…"), style="flat"
        )
        self._more = create_fold_button("fold", tr("Counts"), name=tr("Counts per class"))
        self._more.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._listing = styled(QPlainTextEdit(), name=tr("Unreadable files"))
        self._listing.setReadOnly(True)
        self._listing.setTabChangesFocus(True)
        theme.scale_with_text(self._listing.setFixedHeight, 110)
        self.bars = ClassBalance()
        self._bars_area = styled(QScrollArea(widgetResizable=True), "panel", name=tr("Counts per class"))
        self._bars_area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._bars_area.setWidget(self.bars)
        self._more.toggled.connect(self._show_listing)
        self._lay_out()
        self.clear()

    def clear(self, text: str = tr("Choose a folder, or drop one on the window.")) -> None:
        """Show `text` instead of inspection results."""
        self._show_contents(text, "", None)

    def show_progress(self, done: int, total: int) -> None:
        """Show the progress of the inspection. `total` is 0 while it is unknown."""
        if self._progress.isHidden():
            self._show_contents(tr("Inspecting the folder…"), "", None)
            self._progress.show()
            self._cancel.show()
        self._progress.setRange(0, total)
        self._progress.setValue(done)
        self._detail.setText(
            tr("{done} of {total} files").format(done=localized(done), total=localized(total))
            if total
            else tr("listing files")
        )
        self._detail.show()

    def show_report(self, report: DatasetReport) -> None:
        """Show the report on a folder, or its possible interpretations if it wasn't recognized."""
        if not report.format:
            text = (
                dataset_format.make_question(report) if report.readings else tr("No dataset recognized in this folder.")
            )
            self._show_contents(text, "", None)
            self.readings.show_report(report)
            self._show_page_button(bool(report.readings), tr("Show the images large"))
            return
        self._show_contents(dataset_format.describe_size(report), dataset_format.describe_dataset(report), report)

    def text(self) -> str:
        return " ".join(filter(None, (self._summary.text(), self._detail.text())))

    def _show_contents(self, summary: str, detail: str, report: DatasetReport | None) -> None:
        """Show `summary` and `detail`, and the images and counts of `report`, or hide these without a report.

        Hides the possible interpretations of the folder, which `show_report` shows afterwards if there are any.
        """
        self._progress.hide()
        self._cancel.hide()
        self._summary.setText(summary)
        self._detail.setText(" · ".join(detail.splitlines()))
        self._detail.setToolTip(detail)
        self._detail.setVisible(bool(detail))
        self._unreadable = dataset_format.list_unreadable_files(report) if report is not None else ""
        self._listing.setPlainText(self._unreadable)
        self.bars.show_report(report)
        self._bars_area.setFixedHeight(min(_BARS_HEIGHT, self.bars.height() + 2))
        self._more.setChecked(False)
        self._more.setVisible(bool(self._unreadable) or (report is not None and bool(report.classes)))
        self._show_listing(False)
        self._show_images(report.examples if report is not None else ())
        self.readings.show_report(None)
        self._show_page_button(
            report is not None, tr("Show examples, with and without augmentation, and the class balance")
        )
        self.setAccessibleName(tr("Dataset"))
        self.setAccessibleDescription(self.text())

    def _show_page_button(self, is_visible: bool, tip: str) -> None:
        """Show or hide the button that opens the dataset page. `tip` describes what the page shows."""
        self.open.setVisible(is_visible)
        self.open.setToolTip(tip)

    def _show_listing(self, is_visible: bool) -> None:
        """Show or hide the counts per class and the unreadable files."""
        self._listing.setVisible(is_visible and bool(self._unreadable))
        self._bars_area.setVisible(is_visible)

    def _show_images(self, examples: tuple[Example, ...]) -> None:
        """Show a strip with examples, or hide it if there are none."""
        self.strip.show_examples(examples)
        self.strip.setVisible(bool(examples))

    def _lay_out(self) -> None:
        head = hbox((self._summary, 1), self._more, self.open, spacing=4)
        row = hbox((self._progress, 1), self._cancel, spacing=4)
        parts = (head, self._detail, row, self.strip, self.readings, self._bars_area, self._listing)
        self.setLayout(vbox(*parts, spacing=4, margins=(10, 6, 8, 8)))
