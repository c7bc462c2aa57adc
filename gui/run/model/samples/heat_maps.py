"""What a model looks at in one image: heat maps for one class, or for two side by side, made on request."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QImage
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QVBoxLayout, QWidget

from engine.contract.inference.explanation import EXPLANATION_FILE, ExplainOrder, HeatMap, decode_explanation
from engine.contract.problems import Problem
from engine.system.decode_errors import NOT_DECODED
from gui.format import localised
from gui.run.model.samples.work_line import WorkLine
from gui.sources.background import in_background, reraise
from gui.sources.dataset_images import read_image
from gui.sources.evaluations import OpenedEvaluation
from gui.sources.inference_child import InferenceChild
from gui.widgets.editors import ChoiceEditor

_SOON_MS = 350
"""A heat map is made once the sample has been looked at for so long."""
OWN, NONE = "", "-"

Maps = list[tuple[str, QImage | str]]


class HeatMaps(QWidget):
    """Makes heat maps of the sample that it is given, while it is switched on.

    Signals: changed() - other maps are to be shown, see `maps`: titles with images, or with why there is none.
    """

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.maps: Maps = []
        self._opened: OpenedEvaluation | None = None
        self._file: Path | None = None
        self._predicted = ""
        self._devices: tuple[str, ...] = ()
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._made = 0
        self.child = InferenceChild("Making the heat map", self)
        self.on = QCheckBox("What it looks at")
        self.on.setToolTip("Shows as heat what in the image speaks for a class (H)")
        self.first, self.second = ChoiceEditor([]), ChoiceEditor([])
        self.first.control.setAccessibleName("Class of the heat map")
        self.second.control.setAccessibleName("Class of a second heat map")
        for editor in (self.first, self.second):
            editor.box.setMinimumContentsLength(14)
        self._versus = QLabel("and")
        self._versus.setObjectName("muted")
        self._versus.setBuddy(self.second.control)
        self.work = WorkLine("Making the heat map")
        self._soon = QTimer(self, interval=_SOON_MS, singleShot=True)
        self._lay_out()
        self.on.toggled.connect(lambda _on: self._again())
        self.first.edited.connect(self._again)
        self.second.edited.connect(self._again)
        self._soon.timeout.connect(self._order)
        self.child.progress.connect(self.work.tell)
        self.child.done.connect(self._done)
        self.child.refused.connect(lambda problems: self.work.rest(*problems))
        self.child.failed.connect(lambda text: self.work.rest(Problem("", text)))

    def show_evaluation(self, opened: OpenedEvaluation, devices: tuple[str, ...]) -> None:
        """From now on samples are of this evaluation; `devices` are where its model is to be run."""
        self._opened, self._devices = opened, devices
        names = opened.evaluation.classes
        classes = [(str(at + 1), name, "") for at, name in enumerate(names)]
        for editor, empty in ((self.first, (OWN, "its prediction", "")), (self.second, (NONE, "nothing else", ""))):
            editor.box.clear()
            editor.set_choices([empty, *classes])
        self.show_sample(None)

    def show_sample(self, file: Path | None, predicted: str = "") -> None:
        """The image of which heat maps are to be made, and the class that is predicted for it, where that is one."""
        self._file, self._predicted = file, predicted
        self._again()

    def close_work(self) -> None:
        """Ends what is being made, for the end of the window."""
        self._soon.stop()
        self.child.close()
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._soon.stop()
        self.child.cancel()

    def _again(self) -> None:
        on = self.on.isChecked()
        self.child.cancel()
        self.work.rest()
        for widget in (self.first, self._versus, self.second):
            widget.setVisible(on)
        if self.maps:
            self.maps = []
            self.changed.emit()
        if on and self._file is not None:
            self._soon.start()
        else:
            self._soon.stop()

    def _order(self) -> None:
        opened, file = self._opened, self._file
        if opened is None or file is None:
            return
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="footplate-")
        self._made += 1
        self.child.start(
            ExplainOrder(
                run=str(opened.kept.folder.parents[1]),
                checkpoint=opened.evaluation.checkpoint,
                devices=self._devices[:1],
                paths=(str(file),),
                out=str(Path(self._folder.name, f"{self._made}")),
                classes=self._classes(opened.evaluation.classes),
            )
        )

    def _classes(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Those asked for; () for the one that the model finds itself."""
        first, second = self.first.value(), self.second.value()
        if second == NONE:
            return () if first == OWN else (names[int(first) - 1],)
        own = self._predicted if first == OWN else names[int(first) - 1]
        return tuple(dict.fromkeys(filter(None, (own, names[int(second) - 1]))))

    def _done(self, path: str) -> None:
        in_background(partial(_read, Path(path)), self, partial(self._take, self._file), reraise)

    def _take(self, file: Path | None, read: tuple[Maps, list[str]] | str) -> None:
        if file != self._file or not self.on.isChecked():
            return
        if isinstance(read, str):
            self.work.rest(Problem("", read))
            return
        self.maps, remarks = read
        self.work.rest(*(Problem("", remark, severity="warning") for remark in remarks))
        self.changed.emit()

    def _lay_out(self) -> None:
        row = QHBoxLayout()
        row.setSpacing(8)
        for widget in (self.on, self.first, self._versus, self.second):
            row.addWidget(widget)
        row.addStretch(1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(row)
        layout.addWidget(self.work)


def _read(path: Path) -> tuple[Maps, list[str]] | str:
    """The maps of the one image that `path` tells of, and what is to be said of them; or why it can't be read."""
    try:
        explanation = decode_explanation(path.read_bytes())
    except (OSError, *NOT_DECODED) as error:
        return f"{EXPLANATION_FILE} can't be read: {error}."
    if not explanation.images:
        return "The image was not looked at."
    image = explanation.images[0]
    maps: Maps = [(_title(each), read_image(path.parent / each.overlay)) for each in image.maps]
    return maps, list(dict.fromkeys(filter(None, (image.reason, *(each.note for each in image.maps)))))


def _title(each: HeatMap) -> str:
    if not each.class_name:
        return "Looks at"
    score = f" ({localised(100 * each.score, 1)} %)" if each.score is not None else ""
    return f"Nothing speaks for {each.class_name}" if each.empty else f"For {each.class_name}{score}"
