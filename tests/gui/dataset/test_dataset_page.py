"""Dataset page, and descriptions of datasets."""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pytest
import torch
from msgspec import structs
from PIL import Image
from PySide6.QtCore import QRect, Qt, QTimer
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.contract.dataset import DatasetReport, Example, ImageSizes, MaskValue, PreviewImage, SplitReport
from engine.contract.images import LegendEntry
from engine.contract.job import Job
from engine.contract.problems import Problem
from engine.data.inspection.inspector import inspect
from engine.data.loading.sampler import GlobalBatchSampler
from engine.data.randomness import RandomStreams
from engine.system.paths import sample_dataset
from engine.tasks.registry import TASKS
from engine.training.dataloaders import create_image_loader, get_normalization
from gui.dataset import dataset_format
from gui.dataset.class_balance import ClassBalance
from gui.dataset.examples import ExampleList
from gui.dataset.page import DatasetPage
from tests.support.painted import describe_painting
from tests.support.unclear_dataset import UNCLEAR
from tests.support.widgets import ShowWidget, is_right_of


def create_png(color: str, right: str = "") -> bytes:
    """Return a PNG image of one color. If `right` is given, it is the color of the right half."""
    stream = BytesIO()
    image = Image.new("RGB", (32, 20), color)
    image.paste(right or color, (16, 0, 32, 20))
    image.save(stream, "PNG")
    return stream.getvalue()


REPORT = DatasetReport(
    folder="/data/flowers",
    format="imagefolder",
    kind="classes",
    title="class folders",
    classes=("ash", "birch", "cedar"),
    splits=(
        SplitReport("train", {"ash": 40, "birch": 10, "cedar": 0}),
        SplitReport("val", {"ash": 4, "birch": 8, "cedar": 1}),
    ),
    examples=(
        Example("ash", "train", create_png("red", "blue"), 0),
        Example("birch", "train", create_png("black"), 40),
        Example("ash", "train", b"not an image"),
    ),
    sizes=ImageSizes((200, 100), (300, 224), (500, 400), 64),
    problems=(Problem("dataset", "Ash is frequent.", "Balance the classes.", "warning"),),
)


@pytest.fixture
def page(show_widget: ShowWidget) -> DatasetPage:
    page = show_widget(DatasetPage(), 640, 600)
    page.show_report(REPORT)
    return page


def test_facts_are_below_the_examples_in_narrow_page(page: DatasetPage, qtbot: QtBot) -> None:
    for width, is_beside in ((640, True), (440, False), (640, True)):
        page.resize(width, 600)
        qtbot.waitUntil(lambda is_beside=is_beside: is_right_of(page.bars, page.examples) is is_beside)


def read_left_color(page: DatasetPage, position: int) -> QColor:
    """Return the color of the left half of the example image at `position`."""
    image = page.examples.image(position).toImage()
    return image.pixelColor(image.width() // 8, image.height() // 2)


def test_dataset_page_filters_examples_by_class(page: DatasetPage) -> None:
    assert [page.classes.itemText(n) for n in range(page.classes.count())] == ["All classes", "ash", "birch"]
    page.classes.setCurrentText("birch")
    assert [example.class_name for example in page.examples.examples] == ["birch"]
    page.show_report(REPORT)
    assert page.classes.currentText() == "birch"
    page.choose(2)
    assert (page.classes.currentIndex(), page.examples.currentRow()) == (0, 2)
    assert page.focusWidget() is page.examples


def make_preview(sample: int, epoch: int, color: str) -> PreviewImage:
    return PreviewImage(sample, epoch, 96, create_png(color))


def test_dataset_page_shows_augmented_images(page: DatasetPage) -> None:
    assert page.epoch_choice.count() == 4  # unchanged, and three epochs
    page.show_augmented(True)
    assert [example.sample for example in page.examples.examples] == [0, 40]
    assert page.examples.is_awaited(0)
    assert page.examples.image(0).isNull()
    assert not page.examples.grab().isNull()
    for image in (make_preview(0, 1, "green"), make_preview(40, 1, "yellow"), make_preview(0, 2, "blue")):
        page.renderer.progress.emit(image)
    assert [page.examples.is_awaited(position) for position in (0, 1)] == [False, False]
    assert [read_left_color(page, position) for position in (0, 1)] == [QColor("green"), QColor("yellow")]
    assert "epoch 1 at 96 px" in page.examples.item(0).toolTip()
    page.epoch_choice.setCurrentIndex(2)
    assert read_left_color(page, 0) == QColor("blue")
    assert page.examples.is_awaited(1)
    page.show_augmented(False)
    assert read_left_color(page, 0) == QColor("red")
    assert page.progress.isHidden()


def test_dataset_page_shows_why_nothing_is_rendered(page: DatasetPage, qtbot: QtBot) -> None:
    page.hide()
    page.show_augmented(True)
    qtbot.waitUntil(lambda: not any(timer.isActive() for timer in page.findChildren(QTimer)))
    page.show()
    qtbot.waitUntil(page.render_problem.isVisible)
    assert not page.progress.isVisible()
    page.renderer.refused.emit((Problem("transforms", "There is no transform “rotat”.", "Did you mean “rotate”?"),))
    assert page.render_problem.text() == "There is no transform “rotat”. Did you mean “rotate”?"


def test_dataset_page_drops_images_of_other_jobs(page: DatasetPage) -> None:
    page.show_augmented(True)
    page.renderer.progress.emit(make_preview(0, 1, "green"))
    assert not page.examples.is_awaited(0)
    page.set_job(Job.from_fields(epochs=2))
    assert page.examples.is_awaited(0)
    assert page.epoch_choice.count() == 3
    page.renderer.progress.emit(make_preview(0, 1, "green"))
    page.set_job(Job.from_fields(epochs=2, patience=3))  # the patience doesn't affect images
    assert not page.examples.is_awaited(0)
    page.set_job(Job.from_fields(epochs=2, augmentation="light"))
    assert page.examples.is_awaited(0)
    page.renderer.done.emit(False)
    assert page.progress.text().startswith("Cropped from larger images; not flipped")
    page.set_job(Job.from_fields(epochs=2, augmentation="none"))
    page.renderer.done.emit(False)
    assert page.progress.text() == "Not augmented."
    page.set_job(None)
    page.renderer.done.emit(False)
    assert page.progress.text() != "Not augmented."


@pytest.mark.parametrize("change", [{"format": "imagefolder"}, {"fold": "1/5"}])
def test_dataset_page_renders_other_images_of_folder(page: DatasetPage, change: dict[str, str]) -> None:
    page.set_job(Job.from_fields(epochs=2))
    page.show_augmented(True)
    page.renderer.progress.emit(make_preview(0, 1, "green"))
    page.set_job(Job.from_fields(epochs=2, **change))
    assert page.examples.is_awaited(0)


@pytest.mark.parametrize("augmentation", ["light", pytest.param("strong", marks=pytest.mark.long)])
def test_dataset_page_renders_images_as_training_does(show_widget: ShowWidget, qtbot: QtBot, augmentation: str) -> None:
    job = Job.from_fields(
        dataset=str(sample_dataset()), model="mnist_cnn", image_size=28, augmentation=augmentation, seed=3, epochs=2
    )
    report = inspect(
        job.data.dataset,
        val_fraction=job.data.val_fraction,
        seed=job.training.seed,
        progress=lambda _done, _total: None,
    )
    page = show_widget(DatasetPage())
    page.set_job(job)
    page.show_report(report)
    page.show_augmented(True)
    with qtbot.waitSignal(page.renderer.done):
        pass
    samples = [example.sample for example in report.examples if example.split == "train"]
    assert page.progress.text()
    task = TASKS[job.task]
    splits = task.open_splits(job)
    sampler = GlobalBatchSampler(len(splits.train), len(splits.train), 0, 1, RandomStreams(3), shuffle=True)
    loader = create_image_loader(
        job, task, splits, splits.train, sampler, threads=0, device=torch.device("cpu"), on_unreadable=print
    )
    mean, std = get_normalization(job, task, splits)
    try:
        for epoch in (1, 2):
            (batch,) = loader.epoch(epoch)
            (rank_samples,) = sampler.iterate_epoch(epoch)
            rows = {int(sample): row for row, sample in enumerate(rank_samples.indices)}
            page.epoch_choice.setCurrentIndex(epoch)
            for position, sample in enumerate(samples):
                assert sample is not None
                expected = (batch.inputs[rows[sample], 0] * std[0] + mean[0]).mul(255).round().clamp(0, 255)
                rendered_pixels = np.asarray(Image.open(BytesIO(page.examples.png(position))).convert("L"))
                assert np.array_equal(rendered_pixels, expected.to(torch.uint8).numpy())
    finally:
        loader.close()


def test_examples_are_a_grid_whose_size_is_chosen(page: DatasetPage) -> None:
    def lay_out(width: int, side: int) -> tuple[int, int]:
        """Resize the page to `width` and set the image size to `side`. Return the image size and the column count."""
        page.resize(width, 700)
        page.side.setValue(side)
        rects = [page.examples.visualItemRect(page.examples.item(n)) for n in range(40)]
        return page.examples.image(0).width(), len({rect.left() for rect in rects})

    page.show_report(structs.replace(REPORT, examples=REPORT.examples[:1] * 40))
    side, columns = lay_out(900, page.side.value())
    assert 96 <= side <= 160
    large = lay_out(900, page.side.maximum())
    assert side < large[0] < 400
    assert large[1] < columns
    assert lay_out(1900, side)[1] > columns >= 4


@pytest.mark.parametrize("strip", [True, False])
def test_examples_keep_selection_and_fit_their_side(
    styled: QApplication, qtbot: QtBot, monkeypatch: pytest.MonkeyPatch, strip: bool
) -> None:
    named, plain = REPORT.examples[:2], tuple(structs.replace(each, class_name="") for each in REPORT.examples[:2])
    examples = ExampleList(96, strip=strip)
    qtbot.addWidget(examples)
    with monkeypatch.context() as patch:
        patch.setattr(examples, "devicePixelRatioF", lambda: 2.0)  # as on a screen with a high resolution
        examples.show_examples(named)
        fine = examples.image(0)
        assert (fine.width(), fine.deviceIndependentSize().width()) == (192, 96)
    heights = []
    for shown, row in ((named, -1), (named, 1), (plain, -1), ((plain[0], named[1]), -1)):
        examples.show_examples(shown)
        assert examples.currentRow() == row
        examples.setCurrentRow(1)
        heights.append(examples.item(0).sizeHint().height())
    assert heights[0] == heights[1] == heights[3] > heights[2]
    bare = ExampleList(96, strip=strip, captions=False)
    qtbot.addWidget(bare)
    bare.show_examples(named)
    assert bare.item(0).sizeHint().height() < heights[0]
    assert bare.isWrapping() is not strip
    image = examples.image(0).toImage()
    colors = {image.pixelColor(x, 20).name() for x in range(image.width())}
    assert (image.width(), colors) == (96, {"#ff0000", "#0000ff"})  # enlarged images stay sharp
    examples.set_side(40)
    image = examples.image(0).toImage()
    assert image.width() == 40
    assert len({image.pixelColor(x, 10).name() for x in range(40)}) > 2
    opened: list[int] = []
    examples.opened.connect(opened.append)
    examples.itemClicked.emit(examples.item(1))
    for key in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
        qtbot.keyClick(examples, key)
    examples.setCurrentRow(0)
    qtbot.keyClick(examples, Qt.Key.Key_Return)
    assert opened == [*[1] * (2 + strip), 0]


def test_examples_leave_unreadable_image_empty(page: DatasetPage) -> None:
    assert page.examples.image(2).isNull()
    assert "“✖” error" in describe_painting(page.examples)
    page.show_augmented(True)
    painted = describe_painting(page.examples)
    assert "error" not in painted
    assert "“ash” text" in painted
    assert "accent" not in painted
    page.examples.setCurrentRow(0)
    assert "accent" in describe_painting(page.examples)


def test_dataset_page_closes_on_escape(page: DatasetPage, qtbot: QtBot) -> None:
    page.activateWindow()
    page.examples.setFocus()
    with qtbot.waitSignal(page.closed):
        qtbot.keyClick(page.examples, Qt.Key.Key_Escape)


@pytest.mark.parametrize("report", [None, DatasetReport(folder="/data", format="")])
def test_dataset_page_without_dataset_is_empty(page: DatasetPage, report: DatasetReport | None) -> None:
    assert page.subtitle.text()
    page.show_report(report)
    assert (page.title.text(), page.subtitle.text()) == ("Dataset", "")
    assert not page.examples.isVisible()
    page.show_report(REPORT)
    assert page.examples.isVisible()
    assert page.problems.text() == "Ash is frequent. Balance the classes."


def test_dataset_page_forgets_images_and_notice_of_other_reports(page: DatasetPage) -> None:
    page.show_augmented(True)
    page.renderer.progress.emit(make_preview(0, 1, "green"))
    page.show_notice("Look here.")
    page.showMinimized()
    page.show_report(REPORT)
    assert (page.examples.is_awaited(0), page.notice.isVisible()) == (False, True)
    page.show_report(structs.replace(REPORT, title="folders"))
    assert (page.examples.is_awaited(0), page.notice.isVisible()) == (True, False)
    page.show_notice("Look here.")
    page.hide()
    page.show()
    assert not page.notice.isVisible()


def test_dataset_page_keeps_available_choices(page: DatasetPage) -> None:
    def choices() -> tuple[str, str]:
        return page.classes.currentText(), page.epoch_choice.currentText()

    page.classes.setCurrentText("birch")
    page.epoch_choice.setCurrentIndex(3)
    page.show_report(structs.replace(REPORT, title="folders"))
    assert choices() == ("birch", "as augmented in epoch 3")
    page.set_job(Job.from_fields(epochs=2))
    assert choices() == ("birch", "as they are")
    page.set_job(Job.from_fields(epochs=1))
    assert page.epoch_choice.isVisible()
    page.show_report(structs.replace(REPORT, examples=REPORT.examples[2:]))
    assert choices() == ("All classes", "as they are")
    widgets = (page.classes, page.epoch_choice, page.examples, page.empty_text)
    assert [widget.isVisible() for widget in widgets] == [False, False, True, False]
    page.show_report(structs.replace(REPORT, examples=()))
    assert [widget.isVisible() for widget in widgets] == [False, False, False, True]
    assert page.empty_text.text() == "This folder has no examples to show."


def test_dataset_page_asks_how_to_read_an_unclear_folder(page: DatasetPage) -> None:
    page.show_augmented(True)
    page.show_report(UNCLEAR)
    page.choose(0)
    assert page.focusWidget() is page.question.readings.buttons[0]
    page.show_report(REPORT)
    assert page.epoch_choice.currentIndex() == 0


def test_class_balance_uses_colors_of_legend(styled: QApplication, qtbot: QtBot) -> None:
    def colors(report: DatasetReport) -> set[str]:
        bars = ClassBalance()
        qtbot.addWidget(bars)
        bars.resize(300, 200)
        bars.show_report(report)
        image = bars.grab().toImage()
        return {image.pixelColor(x, y).name() for x in range(20) for y in range(image.height())}

    legend = tuple(LegendEntry(name, color) for name, color in zip("abc", ("", "#ff00ff", "#00ffff"), strict=True))
    assert {"#ff00ff", "#00ffff"} <= colors(structs.replace(REPORT, legend=legend))
    assert not {"#ff00ff", "#00ffff"} & colors(REPORT)
    shorter = colors(structs.replace(REPORT, legend=legend[:2]))
    assert "#ff00ff" in shorter
    assert "#00ffff" not in shorter


@pytest.mark.parametrize(("kind", "noun"), [("classes", "Images"), ("points", "Clouds"), ("files", "Files")])
def test_class_balance_names_the_samples(styled: QApplication, qtbot: QtBot, kind: str, noun: str) -> None:
    bars = ClassBalance()
    qtbot.addWidget(bars)
    bars.resize(300, 200)
    bars.show_report(structs.replace(REPORT, kind=kind))
    assert describe_painting(bars).startswith(f"“{noun}: train · val”")


def test_class_balance_repaints_each_part_as_the_whole(styled: QApplication, qtbot: QtBot) -> None:
    bars = ClassBalance()
    qtbot.addWidget(bars)
    bars.show_report(REPORT)
    bars.resize(300, bars.height())
    image = bars.grab().toImage()
    for top in range(0, bars.height() - 3, 4):
        part = QRect(0, top, 300, 4)
        assert bars.grab(part).toImage() == image.copy(part), top


def test_class_balance_scales_bars_by_split(styled: QApplication, qtbot: QtBot) -> None:
    bars = ClassBalance()
    qtbot.addWidget(bars)
    bars.show_report(REPORT)
    assert [(bars.compute_bar_fraction(row, 0), bars.compute_bar_fraction(row, 1)) for row in range(3)] == [
        (1.0, 0.5),
        (0.25, 1.0),
        (0.0, 0.125),
    ]
    tall = bars.height()
    bars.show_report(None)
    assert bars.accessibleDescription() == ""
    assert bars.height() < tall


def test_dataset_page_lists_the_values_of_masks(page: DatasetPage) -> None:
    values = (MaskValue("0", 0.75, 6, "sky"), MaskValue("9", 0.25, 1, None))
    page.show_report(structs.replace(REPORT, mask_values=values))
    assert page.mask_values.isVisibleTo(page)
    lines = page.mask_values.text().splitlines()
    assert lines[1].startswith("0: sky, 75")
    assert lines[2].startswith("9: no class, 25")
    page.show_report(REPORT)
    assert not page.mask_values.isVisibleTo(page)


def test_mask_values_text_keeps_the_most_frequent() -> None:
    values = tuple(MaskValue(str(number), number / 1000, 1) for number in range(40))
    lines = dataset_format.list_mask_values(structs.replace(REPORT, mask_values=values)).splitlines()
    assert len(lines) == dataset_format.MAX_VALUES + 2
    assert lines[1].startswith("16: no class")
    assert "16 more" in lines[-1]
