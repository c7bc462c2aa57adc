"""Possible interpretations ("readings") of an ambiguous folder, each with images and a button that selects it."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QWidget

from engine.contract.dataset import DatasetReport, Interpretation
from gui.dataset import dataset_format
from gui.dataset.examples import ExampleList
from gui.format import capitalize
from gui.translation import tr
from gui.widgets.labels import ProblemLabel, WrappingLabel
from gui.widgets.layouts import vbox

NO_EXAMPLES = tr("No image can be shown for this.")


class ReadingChoices(QWidget):
    """List of the possible interpretations of a folder in a report. It is hidden if there are none.

    Signals:
        chosen(Choice): the user has pressed the button of an interpretation.
        opened(): the user has clicked an image, or pressed Enter on it.
    """

    chosen = Signal(object)
    opened = Signal()

    def __init__(self, side: int) -> None:
        """Create an empty list. `side` is the side length of its images in pixels."""
        super().__init__()
        self._side = side
        self._report: DatasetReport | None = None
        self._cards: list[QWidget] = []
        self.buttons: list[QPushButton] = []
        self._column = vbox(spacing=16, margins=(0, 4, 0, 4))
        self.setLayout(self._column)
        self.setAccessibleName(tr("Ways to read the folder"))
        self.hide()

    def show_report(self, report: DatasetReport | None) -> None:
        """Show the interpretations in `report`."""
        if report is self._report:
            return
        self._report = report
        for card in self._cards:
            self._column.removeWidget(card)
            card.hide()  # deletion is deferred, and two lists must not be visible
            card.deleteLater()
        self.buttons = []
        self._cards = []
        if report is not None:
            self._cards = [self._create_card(reading, report) for reading in report.readings]
        for card in self._cards:
            self._column.addWidget(card)
        self.setVisible(bool(self._cards))

    def _create_card(self, reading: Interpretation, report: DatasetReport) -> QWidget:
        """Create a card for an interpretation, with facts for and against it, images, and a button that chooses it.

        The button is added to `buttons`.
        """
        card = QWidget()
        column = vbox(WrappingLabel(capitalize(reading.title), "heading"), spacing=6)
        card.setLayout(column)
        evidence = dataset_format.list_evidence(reading)
        if evidence:
            column.addWidget(WrappingLabel(evidence, "muted"))
        column.addWidget(self._create_image_strip(reading) if reading.examples else WrappingLabel(NO_EXAMPLES, "muted"))
        choice = dataset_format.find_choice(reading, report)
        button = QPushButton(choice.title)
        button.setAccessibleDescription(evidence)
        button.clicked.connect(lambda: self.chosen.emit(choice))
        self.buttons.append(button)
        column.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
        return card

    def _create_image_strip(self, reading: Interpretation) -> ExampleList:
        """Create the strip of example images for an interpretation."""
        images = ExampleList(self._side, strip=True)
        images.setAccessibleName(tr("Examples of {title}").format(title=reading.title))
        images.show_examples(reading.examples)
        images.opened.connect(lambda _index: self.opened.emit())
        return images


class AmbiguousFolderView(QWidget):
    """Problems of an ambiguous folder, and its possible interpretations.

    Signals:
        chosen(Choice): the user has chosen how to read the folder, or another remedy.
    """

    chosen = Signal(object)

    def __init__(self, side: int) -> None:
        """Create an empty view. `side` is the side length of its images in pixels."""
        super().__init__()
        self.problems = ProblemLabel()
        self.readings = ReadingChoices(side)
        for view in (self.problems, self.readings):
            view.chosen.connect(self.chosen)
        self.setLayout(vbox(self.problems, self.readings, 1, margins=(0, 0, 8, 0)))

    def show_report(self, report: DatasetReport | None) -> None:
        """Show the problems and interpretations in `report`."""
        problems = report.problems if report is not None else ()
        self.problems.show_problems(dataset_format.remove_reading_choices(problems, report))
        self.readings.show_report(report)
