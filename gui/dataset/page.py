"""Dataset page: large examples, class balance and problems, or possible interpretations of an ambiguous folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import (
    QComboBox,
    QFrame,
    QPushButton,
    QScrollArea,
    QSlider,
    QSplitter,
    QStackedWidget,
    QWidget,
)

from engine.contract import augmentation
from engine.contract.dataset import (
    MAX_PREVIEW_SIDE,
    PREVIEW,
    PREVIEW_EPOCHS,
    DatasetReport,
    Example,
    PreviewImage,
    PreviewRequest,
)
from engine.contract.job import Job
from engine.contract.problems import Problem
from gui.actions import bind, create_back_action
from gui.dataset import dataset_format
from gui.dataset.class_balance import ClassBalance
from gui.dataset.examples import ExampleList
from gui.dataset.reading_choices import AmbiguousFolderView
from gui.sources.json_lines import JsonLinesProcess
from gui.style import theme
from gui.translation import tr
from gui.widgets.banner import Banner
from gui.widgets.buttons import styled
from gui.widgets.editors import ComboBox
from gui.widgets.labels import EmptyState, ProblemLabel, WrappingLabel, field_label, heading_label, muted_label
from gui.widgets.layouts import hbox, scroll_panel, vbox

EMPTY = tr("No dataset to show yet.\n\nChoose a folder in the form to see its images and classes here.")
SIDE, _SMALLEST = 128, 64
"""Initial and minimum side length of an example in pixels."""
_NARROW = 450
"""Width in pixels, at a text size of 100%, below which the facts are placed below the examples."""
_SIZES = [400, 210]
_EMPTY_PAGE, _REPORT_PAGE, _QUESTION_PAGE = range(3)
ALL = tr("All classes")
RENDERED_BY = (
    "dataset", "format", "fold", "task", "model", "model_file_sha256", "encoder", "image_size", "progressive_from", "augmentation",
    "transforms", "mirror", "seed", "epochs", "val_fraction", "ignore_value",
)  # fmt: skip
"""Job fields that affect how training images are rendered."""
_EDITING_MS = 400
"""Milliseconds after the last edit until images are rendered again."""


class DatasetPage(QWidget):
    """Page about the dataset in the form.

    While it is visible, a child process renders images exactly as the job would train on them.

    Signals:
        closed(): the user has left the page.
        choice_made(Choice): the user has chosen how to read the folder, or another remedy.
    """

    closed = Signal()
    choice_made = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        styled(self, "panel", name=tr("Dataset page"))
        self._latest_report: DatasetReport | None = None  # last one shown, even if its format is unknown
        self._report: DatasetReport | None = None  # the same report, or None if its format is unknown
        self._job: Job | None = None
        self._rendered: dict[tuple[int, int], PreviewImage] = {}  # by sample and epoch
        self._is_rendering_requested = False  # True once the images of the job have been requested
        self.renderer = Renderer(self)
        self._render_timer = QTimer(self, interval=_EDITING_MS, singleShot=True)
        self.leave = create_back_action(self, "leave_dataset")
        self.back = bind(QPushButton(), self.leave, tr("Back from the dataset"))
        self.title = WrappingLabel(name="heading")
        self.subtitle = WrappingLabel(name="muted")
        self.classes = styled(ComboBox(), name=tr("Class"))
        self.classes.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.classes.setMinimumContentsLength(7)
        self.epoch_choice = ComboBox()  # the images in the folder (index 0), or as augmented in an epoch
        self.epoch_choice.setAccessibleName(tr("Shown as"))
        self.epoch_choice.setToolTip(
            tr("The training images of an epoch, exactly as the form's augmentation and seed produce them")
        )
        self.render_problem = ProblemLabel()
        self.progress = muted_label(word_wrap=True)
        self._class_label, self._epoch_label = (
            field_label(tr("Class"), self.classes),
            field_label(tr("Shown"), self.epoch_choice),
        )
        self.examples = ExampleList(SIDE, strip=False)
        self.side = _create_size_slider()
        self.side.valueChanged.connect(self.examples.set_side)
        self.empty_text = WrappingLabel(name="muted")  # text in place of the examples if there are none
        self.bars = ClassBalance()
        self.mask_values = WrappingLabel(name="muted")
        self.objects = WrappingLabel(name="muted")
        self.problems = ProblemLabel()
        self.notice = Banner(name=tr("Notice"), close=tr("Close the notice"))
        self.question = AmbiguousFolderView(SIDE)
        self._splitter = QSplitter(Qt.Orientation.Horizontal)
        self._stack = QStackedWidget()
        self._lay_out()
        self.leave.on_trigger(self.closed.emit)
        self.problems.chosen.connect(self.choice_made)
        self.question.chosen.connect(self.choice_made)
        self.classes.currentIndexChanged.connect(self._show_examples)
        self.epoch_choice.currentIndexChanged.connect(self._show_examples)
        self._render_timer.timeout.connect(self._render)
        self.renderer.progress.connect(self._on_rendered)
        self.renderer.done.connect(self._on_finished)
        self.renderer.refused.connect(self._show_problems)
        self.renderer.failed.connect(lambda text: self._show_problems((Problem("", text),)))
        self.show_report(None)

    def show_report(self, report: DatasetReport | None) -> None:
        """Show the report on a folder, or its possible interpretations if it is ambiguous.

        The selected class remains selected if it still exists.
        """
        if report is not None and report is self._latest_report:  # the page must also show None when it is created
            return
        if report is not self._latest_report:
            self.notice.show_message("")
        self._latest_report = report
        self._report = report if report is not None and report.format else None
        self._discard_rendered()
        ambiguous = report if report is not None and not report.format and report.readings else None
        self.question.show_report(ambiguous)
        if ambiguous is not None:
            self.show_augmented(False)
            self._stack.setCurrentIndex(_QUESTION_PAGE)
            self.title.setText(f"{Path(ambiguous.folder).name} · {dataset_format.make_question(ambiguous)}")
            self.subtitle.setText("")
            return
        if self._report is None:
            self._stack.setCurrentIndex(_EMPTY_PAGE)
            self.title.setText(tr("Dataset"))
            self.subtitle.setText("")
            return
        self._stack.setCurrentIndex(_REPORT_PAGE)
        self.title.setText(f"{Path(self._report.folder).name} · {dataset_format.describe_size(self._report)}")
        self.subtitle.setText(dataset_format.describe_dataset(self._report))
        self.bars.show_report(self._report)
        values = dataset_format.list_mask_values(self._report)
        self.mask_values.setText(values)
        self.mask_values.setVisible(bool(values))
        objects = "\n".join(filter(None, map(dataset_format.describe_objects, self._report.splits)))
        self.objects.setText(objects)
        self.objects.setVisible(bool(objects))
        self.problems.show_problems(self._report.problems)
        self._update_choices()
        self._show_examples()

    def show_notice(self, text: str) -> None:
        """Show a notice above the examples until the user leaves the page or the report changes."""
        self.notice.show_message(text, "info")

    def close_work(self) -> None:
        """End the child process that renders examples."""
        self.renderer.close()

    def set_job(self, job: Job | None) -> None:
        """Set the job whose training images are rendered, or None if it is invalid.

        Rendered images are discarded only if a field that affects them has changed.
        """
        has_changed = _get_rendering_values(job) != _get_rendering_values(self._job)
        self._job = job
        if has_changed:
            self._discard_rendered()
            if self._report is not None:
                self._update_choices()
                self._show_examples()

    def show_augmented(self, augmented: bool) -> None:
        """Show the examples as augmented in the first epoch if `augmented` is True, otherwise unchanged.

        Without training images that can be rendered, they are always unchanged.
        """
        self.epoch_choice.setCurrentIndex(1 if augmented and self.epoch_choice.count() > 1 else 0)

    def choose(self, index: int) -> None:
        """Select the example at `index` in the report, and give it the keyboard focus.

        For an ambiguous folder, focus the button of the first interpretation instead.
        """
        if self.question.readings.buttons:
            self.question.readings.buttons[0].setFocus()
            return
        self.classes.setCurrentIndex(0)
        self.examples.setCurrentRow(index)
        self.examples.setFocus()

    def _update_choices(self) -> None:
        """Offer the classes and epochs that can be shown. The current choices don't change if they are available."""
        assert self._report is not None
        selected = self.classes.currentText()
        names_with_examples = {name for example in self._report.examples for name in _list_classes(example)}
        class_names = [name for name in self._report.classes if name in names_with_examples]
        epochs = self._count_rendered_epochs()
        with QSignalBlocker(self.classes), QSignalBlocker(self.epoch_choice):
            self.classes.clear()
            self.classes.addItems([ALL, *class_names])
            self.classes.setCurrentIndex(max(0, self.classes.findText(selected)))
            index = self.epoch_choice.currentIndex()
            self.epoch_choice.clear()
            augmented = [tr("as augmented in epoch {epoch}").format(epoch=epoch) for epoch in range(1, epochs + 1)]
            self.epoch_choice.addItems([tr("as they are"), *augmented])
            self.epoch_choice.setCurrentIndex(index if 0 <= index <= epochs else 0)
        for widget in (self._class_label, self.classes):
            widget.setVisible(len(class_names) > 1)
        for widget in (self._epoch_label, self.epoch_choice):
            widget.setVisible(epochs > 0)

    def _count_rendered_epochs(self) -> int:
        """Return the number of epochs whose training images can be rendered, or 0 without training images."""
        if not self._list_training_samples():
            return 0
        return PREVIEW_EPOCHS if self._job is None else min(PREVIEW_EPOCHS, self._job.training.epochs)

    def _show_examples(self) -> None:
        """Show the examples of the selected class and epoch, and request missing rendered images."""
        if self._report is None:
            return
        selected = self.classes.currentText() if self.classes.currentIndex() > 0 else ""
        examples = [example for example in self._report.examples if not selected or selected in _list_classes(example)]
        epoch = max(0, self.epoch_choice.currentIndex())  # 0 for the images in the folder
        if epoch:
            examples = [example for example in examples if _can_render(example)]
        images = {image.sample: image for image in self._rendered.values() if image.epoch == epoch}
        self.examples.show_examples(examples, images if epoch else None)
        self.examples.setVisible(bool(examples))
        if epoch and not self._is_rendering_requested:
            self._is_rendering_requested = True
            self._show_progress(tr("Rendering the augmented images…"))
            self._render_timer.start()
        for widget in (self.render_problem, self.progress):
            widget.setVisible(bool(epoch) and bool(widget.text()))
        self.empty_text.setText("" if examples else tr("This folder has no examples to show."))
        self.empty_text.setVisible(not examples)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Place the facts below the examples if the page is too narrow."""
        is_narrow = event.size().width() < theme.scale_pixels(_NARROW)
        orientation = Qt.Orientation.Vertical if is_narrow else Qt.Orientation.Horizontal
        if orientation != self._splitter.orientation():
            self._splitter.setOrientation(orientation)
            self._splitter.setStretchFactor(1, int(is_narrow))
            self._splitter.setSizes([1, 1] if is_narrow else _SIZES)
        super().resizeEvent(event)

    # Rendering

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._report is not None:
            self._show_examples()

    def hideEvent(self, event: QHideEvent) -> None:
        """Cancel an incomplete rendering, which starts again when the page is shown.

        Also hides the notice, unless the page is only hidden because the window is minimized.
        """
        if self.renderer.running or self._render_timer.isActive():
            self._discard_rendered()
        if not event.spontaneous():  # the notice stays if the window is only minimized
            self.notice.show_message("")
        super().hideEvent(event)

    def _list_training_samples(self) -> list[int]:
        """Return the indices in the training split of all examples that can be rendered."""
        examples = self._report.examples if self._report is not None else ()
        return [example.sample for example in examples if example.sample is not None and _can_render(example)]

    def _discard_rendered(self) -> None:
        """Cancel the rendering, and remove the images that were rendered for an earlier job."""
        self._render_timer.stop()
        self.renderer.cancel()
        self._rendered.clear()
        self._is_rendering_requested = False
        self._show_progress("")
        self.render_problem.show_problems(())

    def _render(self) -> None:
        """Start rendering the job's training images, or show that the job is invalid. Wait while the page is hidden."""
        if not self.isVisible():
            self._is_rendering_requested = False  # so that the images are requested when the page is shown
        elif self._job is None:
            self._show_problems((Problem("", tr("The form has errors."), tr("Correct the marked fields.")),))
        else:
            self.renderer.start(self._job, self._list_training_samples())

    def _on_rendered(self, image: PreviewImage) -> None:
        """Cache a rendered image, and show it if its epoch is selected."""
        self._rendered[image.sample, image.epoch] = image
        if image.epoch == self.epoch_choice.currentIndex():
            self.examples.add_rendered(image)

    def _on_finished(self, mirrored: bool) -> None:
        """Describe the augmentation of the rendered images. `mirrored` is True if they may be flipped."""
        job = self._job
        if job is None:
            return
        titles = {"none": tr("Not augmented"), "light": tr("Cropped from larger images")}
        text = titles.get(job.augmentation.name) or tr("Transforms: {job}").format(job=augmentation.describe(job))
        if not mirrored and job.augmentation.name != "none":
            text += tr("; not flipped, as that would change the meaning of the images")
        self._show_progress(f"{text}.")

    def _show_problems(self, problems: tuple[Problem, ...]) -> None:
        """Show why the images can't be rendered."""
        self._show_progress("")
        self.render_problem.show_problems(problems)
        self._show_examples()  # shows the problems only if augmented images are selected

    def _show_progress(self, text: str) -> None:
        """Show `text` about the progress of rendering, if augmented images are selected."""
        self.progress.setText(text)
        self.progress.setVisible(bool(text) and self.epoch_choice.currentIndex() > 0)

    # Construction

    def _lay_out(self) -> None:
        head = hbox(vbox(self.back, 1), (vbox(self.title, self.subtitle, spacing=2), 1), spacing=12)
        top = hbox(
            self._class_label,
            self.classes,
            self._epoch_label,
            self.epoch_choice,
            1,
            field_label(tr("Size"), self.side),
            self.side,
        )
        body, left = QWidget(), QWidget()
        left.setLayout(vbox(self.progress, self.render_problem, (self.examples, 1), (self.empty_text, 1)))
        self._splitter.setChildrenCollapsible(False)
        self._splitter.addWidget(left)
        self._splitter.addWidget(self._create_facts())
        self._splitter.setStretchFactor(0, 1)
        self._splitter.setSizes(_SIZES)
        body.setLayout(vbox(top, (self._splitter, 1)))
        for page in (EmptyState(EMPTY), body, scroll_panel(self.question)):
            self._stack.addWidget(page)
        self.setLayout(vbox(head, self.notice, (self._stack, 1), margins=(14, 10, 14, 10)))

    def _create_facts(self) -> QWidget:
        """Create the scroll area with classes, mask values, objects and problems."""
        inside = QWidget()
        facts = (heading_label(tr("Classes")), self.bars, self.mask_values, self.objects, self.problems)
        inside.setLayout(vbox(*facts, 1, spacing=6, margins=(8, 0, 8, 0)))
        area = styled(QScrollArea(widgetResizable=True), "panel", name=tr("Classes and problems"))
        area.setFrameShape(QFrame.Shape.NoFrame)
        area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        area.setWidget(inside)
        theme.scale_with_text(area.setMinimumWidth, 200)
        return area


def _create_size_slider() -> QSlider:
    """Create the slider for the side length of the examples."""
    slider = styled(QSlider(Qt.Orientation.Horizontal), name=tr("Size of the images"), tip=tr("Size of the images"))
    slider.setRange(_SMALLEST, MAX_PREVIEW_SIDE)
    slider.setPageStep(32)
    slider.setValue(SIDE)
    slider.setMinimumWidth(40)
    theme.scale_with_text(slider.setMaximumWidth, 140)
    return slider


def _get_rendering_values(job: Job | None) -> tuple[object, ...] | None:
    """Return the values of the fields that affect rendering, or None without a job."""
    return None if job is None else tuple(job.value(name) for name in RENDERED_BY)


def _can_render(example: Example) -> bool:
    """Return True if an example can be rendered: it is a training image whose index in the split is known."""
    return example.split == "train" and example.sample is not None


def _list_classes(example: Example) -> set[str]:
    """Return the possible names of the classes of an example.

    `class_name` may contain several names, separated by commas, or a single name with a comma. Therefore the result
    contains the full text and each part of it.
    """
    return {example.class_name, *example.class_name.split(", ")} - {""}


_LINE_LIMIT_BYTES = 8 << 20


class Renderer(JsonLinesProcess):
    """Child process that renders the images of jobs, one job at a time.

    Its progress is a PreviewImage, and its result is True if images may be mirrored.
    """

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(
            "engine.training.preview",
            tr("Rendering the images"),
            PREVIEW.decode,
            parent,
            line_limit_bytes=_LINE_LIMIT_BYTES,
        )

    def start(self, job: Job, samples: Sequence[int]) -> None:
        """Start rendering the images with the indices `samples` in the training split, as `job` would train on them."""
        self.run(stdin=msgspec.json.encode(PreviewRequest(job, tuple(samples))))
