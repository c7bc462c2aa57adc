"""What was found in the dataset folder: format, splits, classes, unreadable files and a few pictures."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QPixmap
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QSizePolicy,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from engine.contract.dataset import DatasetReport, Example, SplitReport, channels_in_words
from gui import icons, theme

FORMATS = {"imagefolder": "folders of pictures", "idx": "MNIST's idx files", "masks": "pictures and masks"}
THUMBNAIL = 44
NAMED_UNREADABLE = 200


class DatasetCard(QFrame):
    """Signals: cancelled() - the user no longer wants the folder looked through."""

    cancelled = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("card")
        self._summary = _wrapped("heading")
        self._detail = _wrapped("muted")
        self._progress = QProgressBar()
        self._progress.setAccessibleName("Looking through the folder")
        self._progress.setMaximumHeight(14)
        self._progress.setTextVisible(False)
        self._cancel = QPushButton("Cancel")
        self._cancel.setAccessibleName("Cancel looking through the folder")
        self._cancel.clicked.connect(self.cancelled)
        self._pictures = QWidget()
        self._pictures.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self._pictures_layout = QHBoxLayout(self._pictures)
        self._pictures_layout.setContentsMargins(0, 2, 0, 0)
        self._pictures_layout.setSpacing(4)
        self._more = QToolButton()
        self._more.setObjectName("fold")
        self._more.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self._more.setCheckable(True)
        self._more.setText("Counts per class")
        self._more.setAccessibleName("Counts per class")
        self._listing = QPlainTextEdit()
        self._listing.setReadOnly(True)
        self._listing.setTabChangesFocus(True)
        self._listing.setAccessibleName("Classes and unreadable files")
        self._listing.setFixedHeight(150)
        self._more.toggled.connect(self._show_listing)
        theme.notifier.changed.connect(self._paint)
        self._lay_out()
        self.clear()

    def clear(self, text: str = "Choose a folder, or drop one on the window.") -> None:
        """Shows no findings, only `text`."""
        self._fill(text, "", "", ())

    def show_progress(self, done: int, total: int) -> None:
        """Tells how far looking through has come; `total` is 0 while it is not known."""
        if self._progress.isHidden():
            self._fill("Looking through the folder …", "", "", ())
            self._progress.show()
            self._cancel.show()
        self._progress.setRange(0, total)
        self._progress.setValue(done)
        self._detail.setText(f"{done:,} of {total:,} files" if total else "listing files")
        self._detail.show()

    def show_report(self, report: DatasetReport) -> None:
        if not report.format:
            self._fill("No dataset was recognised here.", "", "", ())
            return
        pictures = sum(split.pictures for split in report.splits)
        summary = f"{len(report.classes):,} classes, {pictures:,} pictures"
        self._fill(summary, describe(report), listing(report), report.examples)

    def text(self) -> str:
        """All that the card says, in words."""
        return " ".join(filter(None, (self._summary.text(), self._detail.text())))

    def _fill(self, summary: str, detail: str, full: str, examples: tuple[Example, ...]) -> None:
        self._progress.hide()
        self._cancel.hide()
        self._summary.setText(summary)
        self._detail.setText(detail)
        self._detail.setVisible(bool(detail))
        self._listing.setPlainText(full)
        self._more.setChecked(False)
        self._more.setVisible(bool(full))
        self._show_listing(False)
        self._show_pictures(examples)
        self.setAccessibleName("Dataset")
        self.setAccessibleDescription(self.text())

    def _show_listing(self, shown: bool) -> None:
        self._listing.setVisible(shown)
        self._paint()

    def _paint(self) -> None:
        self._more.setIcon(icons.icon("down" if self._more.isChecked() else "right", theme.colors().muted))

    def _show_pictures(self, examples: tuple[Example, ...]) -> None:
        while (item := self._pictures_layout.takeAt(0)) is not None:
            widget = item.widget()
            if widget is not None:
                widget.deleteLater()
        for example in examples[:6]:
            self._pictures_layout.addWidget(_thumbnail(example))
        self._pictures_layout.addStretch(1)
        self._pictures.setVisible(bool(examples))

    def _lay_out(self) -> None:
        layout = QVBoxLayout(self)
        layout.setContentsMargins(10, 8, 10, 8)
        layout.setSpacing(4)
        row = QHBoxLayout()
        row.addWidget(self._progress, 1)
        row.addWidget(self._cancel)
        layout.addWidget(self._summary)
        layout.addWidget(self._detail)
        layout.addLayout(row)
        layout.addWidget(self._pictures)
        layout.addWidget(self._more, 0, Qt.AlignmentFlag.AlignLeft)
        layout.addWidget(self._listing)


def describe(report: DatasetReport) -> str:
    """Format, splits and unreadable files in a sentence or two."""
    splits = ", ".join(f"{s.name} {s.pictures:,}{' (drawn from train)' if s.made else ''}" for s in report.splits)
    colours = channels_in_words(report.channels)
    text = f"{FORMATS.get(report.format, report.format).capitalize()}, {colours} · {splits}"
    if report.unreadable_count:
        files = "file is" if report.unreadable_count == 1 else "files are"
        text += f"\n{report.unreadable_count:,} {files} unreadable and left out: {_names(report)}"
    return text


def listing(report: DatasetReport) -> str:
    """Counts per class and split, then the unreadable files by name, one a line."""
    lines = []
    for name in report.classes:
        counts = ", ".join(f"{split.name} {_share_or_count(split, name)}" for split in report.splits)
        lines.append(f"{name}: {counts}")
    if report.unreadable:
        lines += ["", "Unreadable:"]
        lines += [f"{bad.path}: {bad.reason}" for bad in report.unreadable[:NAMED_UNREADABLE]]
    return "\n".join(lines)


def _share_or_count(split: SplitReport, name: str) -> str:
    """ "1,204", or "31.2 % of the pixels, in 60 pictures"."""
    count = f"{split.counts.get(name, 0):,}"
    if name not in split.shares:
        return count
    return f"{100 * split.shares[name]:.1f} % of the pixels, in {count} pictures"


def _names(report: DatasetReport) -> str:
    shown = ", ".join(bad.path for bad in report.unreadable[:3])
    return shown + (", …" if report.unreadable_count > 3 else ".")


def _thumbnail(example: Example) -> QLabel:
    picture = QPixmap()
    picture.loadFromData(example.png)
    label = QLabel()
    label.setFixedSize(THUMBNAIL, THUMBNAIL)
    label.setAlignment(Qt.AlignmentFlag.AlignCenter)
    if not picture.isNull():
        fitted = Qt.AspectRatioMode.KeepAspectRatio
        label.setPixmap(picture.scaled(THUMBNAIL, THUMBNAIL, fitted, Qt.TransformationMode.SmoothTransformation))
    label.setToolTip(f"{example.class_name} ({example.split})" if example.class_name else example.split)
    label.setAccessibleName(f"Example of {example.class_name}" if example.class_name else "Example with its mask")
    return label


def _wrapped(name: str) -> QLabel:
    label = QLabel()
    label.setObjectName(name)
    label.setWordWrap(True)
    label.setTextFormat(Qt.TextFormat.PlainText)
    label.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Minimum)
    return label
