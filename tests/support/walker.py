"""Recorder of all effects of a control: signals of `gui` classes, opened dialogs and menus, and external requests."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial, partialmethod
from typing import Any

import pytest
from PySide6.QtCore import QMetaMethod, QObject, Qt
from PySide6.QtGui import QContextMenuEvent, QDesktopServices
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QApplication,
    QComboBox,
    QMenu,
    QPushButton,
    QTabBar,
    QToolButton,
    QWidget,
)
from shiboken6 import isValid

from engine.contract.job import Job
from gui.main_window import MainWindow
from gui.monitor.processes import termination
from gui.sources.background import Background
from gui.sources.json_lines import JsonLinesProcess
from gui.sources.settings import Settings
from tests.gui.test_app_names import spoken_name

MAX_CHARACTERS = 60
BORDERS = (
    "gui.sources.launcher",
    "gui.search.page",
    "gui.sources.run_link",
    "gui.widgets.trash_bar",
)
"""Modules whose background calls start, end or delete something, and are therefore recorded instead of executed."""


class Walker:
    """Recorder of the effects of all controls in a window.

    Attributes:
        effects: Descriptions of the effects of the current control.
    """

    def __init__(self, window: MainWindow, patch: pytest.MonkeyPatch) -> None:
        self.window = window
        self.effects: list[str] = []
        self._pressed: set[str] = set()
        self._records = False
        self._signals: dict[type, list[str]] = {}
        for module in BORDERS:
            patch.setattr(f"{module}.in_background", partial(self._request, module))
        patch.setattr(termination, "end", partial(self._request, "end process"))
        patch.setattr(JsonLinesProcess, "run", partialmethod(_run, self))
        patch.setattr(QDesktopServices, "openUrl", lambda url: self._request(f"open {url.toString()}") or True)
        write = Settings.set

        def set_value(settings: Settings, key: str, value: Any) -> None:
            self.record(f"setting {key} = {_summary(value)}")
            write(settings, key, value)

        patch.setattr(Settings, "set", set_value)

    def record(self, effect: str) -> None:
        if self._records:
            self.effects.append(effect)

    def _request(self, name: str, *_arguments: Any) -> None:
        self.record(f"request {name}")

    def press(self, act: Callable[[], object]) -> list[str]:
        """Call `act`, and return descriptions of all effects that occur before it returns."""
        for popup in _popups():
            popup.close()
        state = self._state()
        before = set(_popups())
        clipboard = QApplication.clipboard()
        clipboard.clear()
        self.effects, self._records = [], True
        try:
            act()
        finally:
            self._records = False
        for popup in _popups():
            if popup not in before:
                self.effects.append(f"opens {type(popup).__name__} “{popup.windowTitle()}”")
                popup.close()
        if self._state() != state:
            self.effects.append(f"shows {self._state()}")
        if clipboard.text():
            self.effects.append(f"copies {_summary(clipboard.text())}")
        return list(dict.fromkeys(self.effects))

    def _state(self) -> str:
        """Return the name of the visible page, with the titles of its current tabs."""
        page = self.window.pages.currentWidget()
        views = [tabs.tabText(tabs.currentIndex()) for tabs in page.findChildren(QTabBar) if tabs.isVisible()]
        return " > ".join((type(page).__name__, *views))

    def walk(self, page: QWidget, show: Callable[[], QWidget]) -> Iterator[str]:
        """Use every control on a page that hasn't been used before, and yield a line for each action that has effects.

        `show` shows the page again if an action left it.
        """
        self._connect()
        for control in page.findChildren(QWidget):
            if not isValid(control) or not control.isVisible() or not control.isEnabled():
                continue
            if isinstance(control.parent(), QTabBar):  # closes a tab, and with it the page
                continue
            name = f"{type(control).__name__} “{_plain(spoken_name(control))}” in {_owner(control)}"
            if name in self._pressed:
                continue
            for act, entry in list(_acts(control)):
                self._pressed.add(name)
                state = self._state()
                effects = self.press(act)
                if effects:
                    yield f"{name}{entry}: {'; '.join(effects)}"
                if isinstance(control, QAbstractButton) and isValid(control) and control.isCheckable() and not entry:
                    control.click()
                if self._state() != state:
                    show()
                    self._connect()

    def _connect(self) -> None:
        """Connect the signals of all objects that have been created since the last call."""
        for each in self.window.findChildren(QObject):
            if (
                not type(each).__module__.startswith("gui.")
                or isinstance(each, Background)
                or each.property("is_recorded")
            ):
                continue
            each.setProperty("is_recorded", True)
            kind = type(each)
            if kind not in self._signals:
                self._signals[kind] = list(_own_signals(each))
            for name in self._signals[kind]:
                getattr(each, name).connect(partial(self._on_signal, f"{kind.__name__}.{name}"))

    def _on_signal(self, name: str, *arguments: Any) -> None:
        self.record(f"{name}({', '.join(map(_summary, arguments))})")


def _run(
    process: JsonLinesProcess, walker: Walker, arguments: Sequence[str] = (), stdin: bytes = b"", first: object = None
) -> None:
    """Record the request of a child process instead of starting it. This replaces `JsonLinesProcess.run`."""
    walker.record(f"request {type(process).__name__} {_summary(list(arguments))} {_plain_values(stdin)}")


def _acts(control: QWidget) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield an action for each way to use a control, with the action's name."""
    menu = control.menu() if isinstance(control, QToolButton | QPushButton) else None
    if menu is not None:
        menu.aboutToShow.emit()
        yield from _entries(menu)
    elif isinstance(control, QAbstractButton):
        yield control.click, ""
    elif isinstance(control, QComboBox) and control.count() > 1:
        before = control.currentIndex()
        for index in ((before + 1) % control.count(), before):
            yield partial(_choose, control, index), f" > {control.itemText(index)}"
    else:
        if isinstance(control, QAbstractItemView) and control.model() is not None and control.model().rowCount():
            first = control.model().index(0, 0, control.rootIndex())
            control.setCurrentIndex(first)
            yield partial(control.doubleClicked.emit, first), " > double click"
            yield partial(control.activated.emit, first), " > Return"
        for action in control.actions():
            if action.isEnabled() and not action.isSeparator():
                yield action.trigger, f" > {_plain(action.text())}"
        yield from _context_entries(control)


def _choose(box: QComboBox, index: int) -> None:
    box.setCurrentIndex(index)
    box.activated.emit(index)


def _context_entries(control: QWidget) -> Iterator[tuple[Callable[[], object], str]]:
    """Yield the entries of a widget's context menu. The standard menus of Qt's text widgets are left out."""
    before = set(_popups())
    position = control.rect().center()
    if isinstance(control, QAbstractItemView):
        position = control.visualRect(control.currentIndex()).center()
    if control.contextMenuPolicy() == Qt.ContextMenuPolicy.CustomContextMenu:
        control.customContextMenuRequested.emit(position)
    elif any("contextMenuEvent" in vars(kind) for kind in type(control).__mro__ if kind.__module__.startswith("gui.")):
        reason = QContextMenuEvent.Reason.Mouse
        control.contextMenuEvent(QContextMenuEvent(reason, position, control.mapToGlobal(position)))
    for popup in _popups():
        if popup not in before:
            if isinstance(popup, QMenu):
                yield from _entries(popup)
            popup.close()


def _entries(menu: QMenu, path: str = "") -> Iterator[tuple[Callable[[], object], str]]:
    for action in menu.actions():
        name = f"{path} > {_plain(action.text())}"
        if action.menu() is not None:
            yield from _entries(action.menu(), name)
        elif not action.isSeparator() and action.isEnabled():
            yield action.trigger, name


def _owner(control: QWidget) -> str:
    """Return the class name of a control's nearest parent whose class is defined in `gui`."""
    parent = control.parentWidget()
    while parent is not None and not type(parent).__module__.startswith("gui."):
        parent = parent.parentWidget()
    return type(parent).__name__


def _plain(text: str) -> str:
    return " ".join(text.replace("&", "").split())[:MAX_CHARACTERS]


def _own_signals(each: QObject) -> Iterator[str]:
    """Yield the names of all public signals of an object that `gui` classes declare."""
    meta = each.metaObject()
    of_qt = meta
    while not (of_qt.className() or "").startswith("Q"):
        of_qt = of_qt.superClass()
    for index in range(of_qt.methodCount(), meta.methodCount()):
        method = meta.method(index)
        if method.methodType() == QMetaMethod.MethodType.Signal:
            name = method.name().toStdString()
            if not name.startswith(("_", "sig", "resized")):  # pyqtgraph's signals begin with sig
                yield name


def _popups() -> list[QWidget]:
    return [each for each in QApplication.topLevelWidgets() if each.isVisible() and not isinstance(each, MainWindow)]


def _plain_values(stdin: bytes) -> str:
    """Return the simple values of a request, without those of its job."""
    values = json.loads(stdin) if stdin else {}
    return str(
        {
            name: value
            for name, value in values.items()
            if not isinstance(value, dict) and name not in Job.__struct_fields__
        }
    )


def _summary(value: Any) -> str:
    if value is None or isinstance(value, bool | int | float | str):
        without_paths = re.sub(r"(?<!\w)/[\w.-]+/[\w./-]*", "…", repr(value))
        return re.sub(r"\s+", " ", without_paths)[:MAX_CHARACTERS]
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(map(_summary, value[:3]))}{', …' if len(value) > 3 else ''}]"
    return type(value).__name__
