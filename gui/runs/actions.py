"""What can be done with the runs that are chosen: the same in the buttons, the menu and by keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QInputDialog, QMenu, QPushButton, QWidget

from engine.runs.folder import RunSummary
from gui.runs.deleting import GOING_ON

_CHANGE = "Resume with c&hanges …"
_FURTHER = "&Train further …"
_PAUSE = "Ends after the step in hand and frees its devices; Resume goes on from there (Ctrl+Shift+P)"
_FORK = "Puts a new run into the form that begins with this one's last checkpoint (Ctrl+Shift+K)"


class RunActions(QObject):
    """Signals: tag_wanted(str, bool) - that tag (or tags, between commas) is to be put on the chosen runs, or taken from
    them."""

    tag_wanted = Signal(str, bool)

    def __init__(self, place: QWidget) -> None:
        """The keys act while `place` has the focus."""
        super().__init__(place)
        self._place = place
        self.show = self._make("&Show run", "Opens the run on the Train page (Enter)")
        self.resume = self._make("&Resume", "Goes on from its last checkpoint, on the same devices (Ctrl+R)", "Ctrl+R")
        self.change = self._make(_CHANGE, "Puts the run into the form first (Ctrl+Shift+R)", "Ctrl+Shift+R")
        self.pause = self._make("&Pause", _PAUSE, "Ctrl+Shift+P")
        self.fork = self._make("For&k …", _FORK, "Ctrl+Shift+K")
        self.compare = self._make("&Compare", "Lays the chosen runs over one another (Ctrl+K)", "Ctrl+K")
        self.favourite = self._make("&Favourite", "Marks the chosen runs with a star (Ctrl+D)", "Ctrl+D")
        self.favourite.setCheckable(True)
        self.rename = self._make("Re&name", "Gives the run another name (F2)", "F2")
        self.folder = self._make("Open f&older", "The run's folder, in the desktop's file manager")
        self.delete = self._make("&Delete …", "Asks first, and moves the chosen runs to the trash (Delete)", "Delete")
        self.choose([])

    def choose(self, runs: Sequence[RunSummary]) -> None:
        """Offers what can be done with `runs`."""
        one = runs[0] if len(runs) == 1 else None
        for action in (self.show, self.rename):
            action.setEnabled(one is not None)
        self._allow(self.resume, _why_not_resume(one))
        completed = one is not None and one.state == "completed"
        self.change.setText(_FURTHER if completed else _CHANGE)
        self._allow(self.change, "" if completed else _why_not_resume(one))
        self._allow(self.pause, "" if one is not None and one.state == "running" else "Choose one run that is running")
        self._allow(self.fork, "" if one is not None else "Choose one run")
        self._allow(self.compare, "" if len(runs) > 1 else "Choose two runs or more (Ctrl or Shift with the arrows)")
        self.favourite.setEnabled(bool(runs))
        self.favourite.setChecked(bool(runs) and all(run.favourite for run in runs))
        going = bool(runs) and all(run.state in GOING_ON for run in runs)
        self._allow(self.delete, "Stop it first" if going else "" if runs else "Choose the runs to delete")

    def menu(self, runs: Sequence[RunSummary], known_tags: Sequence[str]) -> QMenu:
        """The menu for `runs`, with all tags that are known."""
        menu = QMenu(self._place)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addActions([self.show, self.folder])
        menu.addSeparator()
        menu.addActions([self.resume, self.change, self.pause, self.fork])
        menu.addSeparator()
        menu.addAction(self.compare)
        menu.addSeparator()
        menu.addActions([self.favourite, self.rename])
        tags = menu.addMenu("&Tags")
        tags.setEnabled(bool(runs))
        for tag in known_tags:
            action = tags.addAction(tag.replace("&", "&&"))
            action.setCheckable(True)
            action.setChecked(all(tag in run.tags for run in runs))
            action.toggled.connect(lambda on, tag=tag: self.tag_wanted.emit(tag, on))
        if known_tags:
            tags.addSeparator()
        tags.addAction("&New tag …", self._ask_for_tag)
        menu.addSeparator()
        menu.addAction(self.delete)
        return menu

    def _ask_for_tag(self) -> None:
        dialog = QInputDialog(self._place)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle("New tag")
        dialog.setLabelText("Tag for the chosen runs")
        dialog.textValueSelected.connect(lambda text: self.tag_wanted.emit(text, True))
        dialog.show()

    def _make(self, text: str, tip: str, keys: str = "") -> QAction:
        action = QAction(text, self)
        action.setProperty("tip", tip)
        action.setToolTip(tip)
        if keys:
            action.setShortcut(QKeySequence(keys))
            action.setShortcutContext(Qt.ShortcutContext.WidgetShortcut)
        self._place.addAction(action)
        return action

    def _allow(self, action: QAction, why_not: str) -> None:
        action.setEnabled(not why_not)
        action.setToolTip(why_not or str(action.property("tip")))


def button_of(action: QAction, *, offered: bool = False) -> QPushButton:
    """A button that does the same and can be used whenever the action can; with `offered` it is in sight only then."""
    button = QPushButton(action.text())

    def follow() -> None:
        button.setText(action.text())
        button.setEnabled(action.isEnabled())
        button.setToolTip(action.toolTip())
        if offered:
            button.setVisible(action.isEnabled())

    action.changed.connect(follow)
    button.clicked.connect(action.trigger)
    follow()
    return button


def on(action: QAction, act: Callable[[], None]) -> None:
    action.triggered.connect(lambda _checked: act())


def _why_not_resume(run: RunSummary | None) -> str:
    if run is None:
        return "Choose one run that was paused, stopped, interrupted, has failed or was not saved"
    if run.state in GOING_ON:
        return "It goes on"
    return "It has come to its end: train it further (Ctrl+Shift+R)" if run.state == "completed" else ""
