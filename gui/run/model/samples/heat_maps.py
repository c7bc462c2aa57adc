"""Heat maps of an image for one or two classes, computed on request."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QImage, QShowEvent
from PySide6.QtWidgets import QCheckBox, QWidget

from engine.contract.inference.explanation import EXPLANATION_FILE, ExplainRequest, HeatMap, decode_explanation
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from engine.system.files import MAX_RESULT_BYTES, read_file
from gui.format import localized
from gui.run.model.samples.progress_line import ProgressLine
from gui.run.request_pages import InferenceChild
from gui.sources.background import in_background, reraise
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.inspector import read_image
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.editors import ChoiceEditor
from gui.widgets.labels import field_label
from gui.widgets.layouts import hbox, vbox

_DELAY_MS = 350
"""Milliseconds before heat maps are computed, because the user may be browsing the samples."""
PREDICTED, NONE = "", "-"
"""Values of the choice of a class that aren't class indices."""

Maps = list[tuple[str, QImage | str]]


class HeatMaps(QWidget):
    """Controls for the heat maps of the current sample.

    Signals:
        changed(): `maps` has changed. Each entry is a title with an image, or with the reason why there is none.
    """

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.maps: Maps = []  # titles, and images or the reasons why they can't be shown
        self._opened: OpenedEvaluation | None = None
        self._file: Path | None = None
        self._predicted = ""  # predicted class of the sample
        self._devices: tuple[str, ...] = ()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._request_count = 0  # numbers the folders of the requests
        self.child = InferenceChild(tr("Making the heat map"), self)
        self.on = styled(QCheckBox(tr("What it looks at")), tip=tr("Highlight evidence for a class (H)"))
        self.first, self.second = ChoiceEditor([]), ChoiceEditor([])
        self.first.control.setAccessibleName(tr("Class of the heat map"))
        self.second.control.setAccessibleName(tr("Class of a second heat map"))
        for editor in (self.first, self.second):
            editor.box.setMinimumContentsLength(14)
        self._second_label = field_label(tr("and"), self.second.control)
        self.progress_line = ProgressLine(tr("Making the heat map"))
        self._delay = QTimer(self, interval=_DELAY_MS, singleShot=True)
        self._lay_out()
        self.on.toggled.connect(lambda _on: self._restart())
        self.first.edited.connect(self._restart)
        self.second.edited.connect(self._restart)
        self._delay.timeout.connect(self._request_maps)
        self.child.done.connect(self._on_done)
        self.progress_line.follow(self.child)

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """Compute heat maps for samples of this evaluation from now on, on `devices`."""
        self._opened, self._devices = opened, devices
        names = opened.evaluation.classes
        classes = [(str(index), name, "") for index, name in enumerate(names)]
        for editor, empty in (
            (self.first, (PREDICTED, tr("the prediction"), "")),
            (self.second, (NONE, tr("no other class"), "")),
        ):
            editor.reset_choices([empty, *classes])
        self.show_sample(None)

    def show_sample(self, file: Path | None, predicted: str = "") -> None:
        """Set the image to explain (None for none) and its predicted class ("" for none or several)."""
        self._file, self._predicted = file, predicted
        self._restart()

    def close_work(self) -> None:
        """Stop the process, and remove the images, when the window closes."""
        self._delay.stop()
        self.child.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if not self.maps:
            self._restart()  # hiding has cancelled the request

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._delay.stop()
        self.child.cancel()

    def _restart(self) -> None:
        """Remove the maps, cancel their computation and, if they are switched on, request new ones after a delay."""
        is_on = self.on.isChecked()
        self.child.cancel()
        self.progress_line.end()
        for widget in (self.first, self._second_label, self.second):
            widget.setVisible(is_on)
        if self.maps:
            self.maps = []
            self.changed.emit()
        if is_on and self._file is not None:
            self._delay.start()
        else:
            self._delay.stop()

    def _request_maps(self) -> None:
        """Start computing heat maps of the current image for the selected classes, in a new folder."""
        opened, file = self._opened, self._file
        if opened is None or file is None:
            return
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="footplate-")
        self._request_count += 1
        self.child.start(
            ExplainRequest(
                run=str(opened.run_folder),
                checkpoint=opened.evaluation.checkpoint,
                devices=self._devices[:1],  # one is enough for a sample
                paths=(str(file),),
                out=str(Path(self._folder.name, f"{self._request_count}")),
                classes=self._chosen_classes(opened.evaluation.classes),
            )
        )

    def _chosen_classes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names of the selected classes, or () if only the class that the model predicts is selected.

        `names` are the names of all classes.
        """
        first, second = self.first.value(), self.second.value()
        if second == NONE:
            return () if first == PREDICTED else (names[int(first)],)
        first_class = self._predicted if first == PREDICTED else names[int(first)]
        return tuple(dict.fromkeys(filter(None, (first_class, names[int(second)]))))

    def _on_done(self, path: str) -> None:
        """Read the heat maps in the result file `path` on a worker thread, then show them."""
        in_background(partial(_read_maps, Path(path)), self, partial(self._show_maps, self._file), reraise)

    def _show_maps(self, file: Path | None, result: tuple[Maps, list[str]] | str) -> None:
        """Show the maps of `file` with their remarks, or the reason why they can't be read.

        Do nothing if another sample is now shown, or if the maps have been switched off.
        """
        if file != self._file or not self.on.isChecked():
            return
        if isinstance(result, str):
            self.progress_line.end(Problem("", result))
            return
        self.maps, remarks = result
        self.progress_line.end(*(Problem("", remark, severity="warning") for remark in remarks))
        self.changed.emit()

    def _lay_out(self) -> None:
        self.setLayout(
            vbox(hbox(self.on, self.first, self._second_label, self.second, 1), self.progress_line, spacing=4)
        )


def _read_maps(path: Path) -> tuple[Maps, list[str]] | str:
    """Return the heat maps in the result file `path` and remarks on them, or the reason why they can't be read."""
    try:
        explanation = decode_explanation(read_file(path, MAX_RESULT_BYTES))
    except (OSError, *NOT_DECODED) as error:
        return tr("Couldn't read {file}: {error}.").format(file=EXPLANATION_FILE, error=error)
    if not explanation.images:
        return tr("The image wasn't explained.")
    image = explanation.images[0]
    maps: Maps = [(_map_title(each), read_image(path.parent / each.overlay)) for each in image.maps]
    return maps, list(dict.fromkeys(filter(None, (image.reason, *(each.note for each in image.maps)))))


def _map_title(each: HeatMap) -> str:
    """Return the title of a heat map: its class and score, or that nothing in the image supports the class."""
    if not each.class_name:
        return tr("Evidence")
    score = f" ({localized(100 * each.score, 1)}%)" if each.score is not None else ""
    return (
        tr("No evidence for {class_name}").format(class_name=each.class_name)
        if each.empty
        else tr("For {class_name}{score}").format(class_name=each.class_name, score=score)
    )
