"""Choice between the possible readings of an ambiguous folder, in the dataset card and on the dataset page."""

from __future__ import annotations

import msgspec
import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport
from engine.contract.problems import Choice, Problem
from gui.dataset import dataset_format
from gui.dataset.examples import ExampleList
from gui.dataset.page import DatasetPage
from gui.dataset.reading_choices import NO_EXAMPLES, ReadingChoices
from gui.form.dataset_card import DatasetCard
from tests.support.unclear_dataset import BOXES, CLASSES, UNCERTAIN, UNCLEAR
from tests.support.widgets import ShowWidget


@pytest.fixture
def card(show_widget: ShowWidget) -> DatasetCard:
    return show_widget(DatasetCard(), 480, 600)


@pytest.fixture
def page(show_widget: ShowWidget) -> DatasetPage:
    return show_widget(DatasetPage(), 480, 600)


@pytest.fixture(params=["card", "page"])
def widget(request: pytest.FixtureRequest) -> DatasetCard | DatasetPage:
    """Return the dataset card or the dataset page, which show an ambiguous folder."""
    return request.getfixturevalue(request.param)


def texts(widget: QWidget) -> list[str]:
    return [label.text() for label in widget.findChildren(QLabel) if label.isVisible()]


def readings_of(widget: DatasetCard | DatasetPage) -> ReadingChoices:
    return widget.readings if isinstance(widget, DatasetCard) else widget.question.readings


def test_unclear_folder_shows_evidence_for_and_against(widget: DatasetCard | DatasetPage) -> None:
    widget.show_report(UNCLEAR)
    found = "\n".join(texts(widget))
    assert "in 2 ways" in found
    for reading in UNCLEAR.readings:
        assert all(fact in found for fact in (*reading.evidence, *reading.against))


def test_unclear_folder_shows_images_of_each_reading(widget: DatasetCard | DatasetPage) -> None:
    widget.show_report(UNCLEAR)
    readings = readings_of(widget)
    (images,) = readings.findChildren(ExampleList)
    assert images.examples == UNCLEAR.readings[0].examples
    assert "COCO JSON" in images.accessibleName()
    assert NO_EXAMPLES in texts(readings)


@pytest.mark.parametrize(("number", "choice"), [(0, BOXES), (1, CLASSES)])
def test_reading_is_chosen_by_keyboard(
    widget: DatasetCard | DatasetPage, number: int, choice: Choice, qtbot: QtBot
) -> None:
    widget.show_report(UNCLEAR)
    button = readings_of(widget).buttons[number]
    assert button.text() == choice.title
    assert UNCLEAR.readings[number].evidence[0] in button.accessibleDescription()
    signal = widget.chosen if isinstance(widget, DatasetCard) else widget.choice_made
    with qtbot.waitSignal(signal) as chosen:
        qtbot.keyClick(button, Qt.Key.Key_Space)
    assert chosen.args == [choice]


def test_readings_leave_with_the_next_report(card: DatasetCard) -> None:
    card.show_report(UNCLEAR)
    assert card.open.isVisible()
    card.show_report(UNCERTAIN)
    assert card.readings.isHidden()
    card.show_report(UNCLEAR)
    card.clear()
    assert card.readings.isHidden()
    assert card.readings.buttons == []
    card.show_report(DatasetReport(folder="", format=""))
    assert card.readings.isHidden()
    assert card.open.isHidden()


def test_image_of_a_reading_opens_the_page(card: DatasetCard, qtbot: QtBot) -> None:
    card.show_report(UNCLEAR)
    (images,) = card.readings.findChildren(ExampleList)
    images.setCurrentRow(1)
    with qtbot.waitSignal(card.gallery_requested):
        qtbot.keyClick(images, Qt.Key.Key_Return)


def test_page_puts_the_keyboard_on_the_first_reading(page: DatasetPage, qtbot: QtBot) -> None:
    page.activateWindow()
    page.show_report(UNCLEAR)
    page.choose(0)
    qtbot.waitUntil(page.question.readings.buttons[0].hasFocus)


def test_page_shows_problems_without_the_readings(page: DatasetPage, qtbot: QtBot) -> None:
    other = Choice("Instance segmentation with COCO JSON", {"format": "coco", "task": "instances"})
    problem = msgspec.structs.replace(UNCLEAR.problems[0], choices=(other, BOXES, CLASSES))
    page.show_report(msgspec.structs.replace(UNCLEAR, problems=(problem,)))
    assert problem.message in texts(page.question.problems)
    (button,) = page.question.problems.findChildren(QPushButton)
    assert [each.text() for each in (button, *page.question.readings.buttons)] == [
        other.title,
        BOXES.title,
        CLASSES.title,
    ]
    with qtbot.waitSignal(page.choice_made) as chosen:
        button.click()
    assert chosen.args == [other]


def test_page_applies_the_choices_of_problems(page: DatasetPage, qtbot: QtBot) -> None:
    problem = Problem("dataset", "It also holds class folders.", severity="warning", choices=(CLASSES,))
    page.show_report(msgspec.structs.replace(UNCERTAIN, problems=(problem,)))
    (button,) = page.problems.findChildren(QPushButton)
    with qtbot.waitSignal(page.choice_made) as chosen:
        button.click()
    assert chosen.args == [CLASSES]


def test_reading_without_a_choice_names_its_task() -> None:
    report = msgspec.structs.replace(UNCLEAR, problems=())
    choices = [dataset_format.find_choice(reading, report) for reading in report.readings]
    assert choices[0] == BOXES
    assert choices[1].values == {"format": "imagefolder", "task": "classification"}


def test_page_of_one_reading_asks_whether_it_is_right(page: DatasetPage) -> None:
    page.show_report(msgspec.structs.replace(UNCLEAR, readings=UNCLEAR.readings[1:], problems=()))
    assert page.title.text().startswith("warehouse · Is this")


def test_recognized_folder_shows_format_and_evidence(widget: DatasetCard | DatasetPage) -> None:
    widget.show_report(UNCERTAIN)
    found = "\n".join(texts(widget))
    assert "COCO JSON: images with boxes" in found
    assert "Recognized by: " + "; ".join(UNCERTAIN.evidence) in found


@pytest.mark.parametrize(
    ("kind", "title", "text"),
    [
        ("points", "point clouds", "Point clouds · train 1"),
        ("points", "SemanticKITTI", "SemanticKITTI: point clouds · train 1"),
        ("files", "", "Files for a custom task · train 1"),
        ("masks", "images and masks", "Images and masks: images with masks, color · train 1"),
    ],
)
def test_describe_names_format_and_kind(kind: str, title: str, text: str) -> None:
    split = dataset_format.SplitReport("train", {}, total=1)
    report = DatasetReport(folder="", format="x:y", kind=kind, title=title, splits=(split,))
    assert dataset_format.describe_dataset(report) == text


def test_page_places_facts_below_on_narrow_pages(page: DatasetPage) -> None:
    page.show_report(UNCERTAIN)
    page.resize(400, 600)
    assert page._splitter.orientation() == Qt.Orientation.Vertical
    page.resize(900, 600)
    assert page._splitter.orientation() == Qt.Orientation.Horizontal


def test_notice_leaves_with_the_report(page: DatasetPage) -> None:
    page.show_report(UNCERTAIN)
    page.show_notice("Check that the labels are right.")
    page.show_report(UNCERTAIN)
    assert page.notice.isVisible()
    page.show_report(UNCLEAR)
    assert page.notice.isHidden()
