"""Recorder of all effects of a control: signals of `gui` classes, changed fields, texts and settings, and requests."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial, partialmethod
from typing import Any

import msgspec
import pytest
from PySide6.QtCore import QMetaMethod, QObject, Qt, QTimer
from PySide6.QtGui import QContextMenuEvent, QDesktopServices, QImage
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSlider,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QFileDialog,
    QLineEdit,
    QMenu,
    QPushButton,
    QScrollBar,
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
from tests.gui.test_app_names import get_spoken_name
from tests.support.page_contents import list_contents

MAX_CHARACTERS = 60
MAX_CHANGES = 3
"""Maximum number of changed lines of a page or changed fields of a job to list."""
TYPED = "7"
"""Text to type into line edits: a number, because some of them accept nothing else."""
YEAR_2001 = 1e9
"""Start of the numbers that are taken for times in seconds since the epoch."""
BORDERS = (
    "gui.commands.slurm",
    "gui.runs.remote_dialog",
    "gui.sources.launcher",
    "gui.search.page",
    "gui.sources.run_link",
    "gui.widgets.trash_bar",
)
"""Modules whose background calls start, end or delete something, and are therefore recorded instead of executed."""


_RANGES = (QAbstractSlider, QAbstractSpinBox)


class Walker:
    """Recorder of the effects of all controls in a window.

    Attributes:
        effects: Descriptions of the effects of the current control.
    """

    def __init__(self, window: MainWindow, patch: pytest.MonkeyPatch) -> None:
        self.window = window
        self.effects: list[str] = []
        self._heard: dict[str, bool] = {}  # True if anything else is connected to a signal
        self._page: QWidget = window
        self._pressed: set[str] = set()
        self._records = False
        self._signals: dict[type, list[QMetaMethod]] = {}
        for module in BORDERS:
            patch.setattr(f"{module}.in_background", partial(self._request, module))
        patch.setattr(termination, "end_process", partial(self._request, "end process"))
        patch.setattr(JsonLinesProcess, "run", partialmethod(_record_request, self))
        patch.setattr(QDesktopServices, "openUrl", lambda url: self._request(f"open {url.toString()}") or True)
        write = Settings.set

        def set_value(settings: Settings, key: str, value: Any) -> None:
            self.record(f"setting {key} = {_summarize(value)}")
            write(settings, key, value)

        patch.setattr(Settings, "set", set_value)

    def record(self, effect: str) -> None:
        if self._records:
            self.effects.append(effect)

    def _request(self, name: str, *_arguments: Any) -> None:
        self.record(f"request {name}")

    def press(self, act: Callable[[], object]) -> list[str]:
        """Call `act`, and return descriptions of all effects that occur before it returns."""
        for popup in self._popups():
            popup.close()
        state, job, lines = self._describe_visible_page(), self._form_values(), self._page_lines()
        before = set(self._popups())
        clipboard = QApplication.clipboard()
        clipboard.clear()
        self.effects, self._records = [], True
        try:
            act()
        finally:
            self._records = False
        for popup in self._popups():
            if popup not in before:
                self.effects.append(f"opens {type(popup).__name__} “{popup.windowTitle()}”{_describe_file_mode(popup)}")
                popup.close()
        self.effects += _shorten_effects(
            [f"job {name} = {value}" for name, value in self._form_values().items() if job[name] != value]
        )
        if self._describe_visible_page() != state:
            self.effects.append(f"shows {self._describe_visible_page()}")
        elif isValid(self._page):
            self.effects += _shorten_effects([f"displays {line}" for line in self._list_new_lines(lines)])
        if clipboard.text():
            self.effects.append(f"copies {_summarize(clipboard.text())}")
        return list(dict.fromkeys(self.effects))

    def _popups(self) -> list[QWidget]:
        return [popup for popup in _find_popups() if popup is not self._page]

    def _form_values(self) -> dict[str, str]:
        """Return the values of all fields of the form."""
        return {name: _summarize(value) for name, value in self.window.form.values().items()}

    def _page_lines(self) -> dict[str, None]:
        """Return the lines of `list_contents` for the page, as the keys of a dict."""
        return dict.fromkeys(list_contents(self._page, with_roles=False))

    def _list_new_lines(self, before: dict[str, None]) -> list[str]:
        """Return the lines of the page that aren't in `before`, without accessible descriptions and tool tips.

        Some descriptions vary between tests. Tiles are left out, because they show live measurements.
        """
        changed = [line for line in self._page_lines() if line not in before and not line.startswith("Tile")]
        return [_simplify(re.split(r" [(\[]", line)[0]) for line in changed]

    def _describe_visible_page(self) -> str:
        """Return the name of the visible page, with the titles of its current tabs."""
        page = self.window.pages.currentWidget()
        views = [tabs.tabText(tabs.currentIndex()) for tabs in page.findChildren(QTabBar) if tabs.isVisible()]
        return " > ".join((type(page).__name__, *views))

    def walk(self, page: QWidget, show: Callable[[], QWidget], untried: Collection[str] = ()) -> Iterator[str]:
        """Use every enabled control of a page, and yield a line for each action that has effects.

        Controls that were used on an earlier page, and those named in `untried`, are left out. `show` shows the page
        again after an action that has opened another page.
        """
        self._page = page
        self._connect_signals()
        for control in page.findChildren(QWidget):
            if not isValid(control) or not control.isVisible() or not control.isEnabled():
                continue
            if isinstance(control.parent(), QTabBar):  # closes a tab, and with it the page
                continue
            name = f"{type(control).__name__} “{_simplify(_get_name(control))}” in {_get_owner_name(control)}"
            if name in self._pressed or name in untried:
                continue
            for act, entry, undo in list(_list_actions(control)):
                self._pressed.add(name)
                state = self._describe_visible_page()
                images = self._grab_images(control) if isinstance(control, _RANGES) else {}
                effects = self.press(act)
                if images and isValid(control) and all(effect.startswith("displays") for effect in effects):
                    now = self._grab_images(control)
                    effects += [f"redraws {title}" for title, image in images.items() if now.get(title) != image]
                if effects:
                    yield f"{name}{entry}: {'; '.join(effects)}"
                if undo is not None and isValid(control):
                    undo()
                if self._describe_visible_page() != state:
                    show()
                    self._connect_signals()

    def _grab_images(self, control: QWidget) -> dict[str, QImage]:
        """Return images of the page's innermost visible `gui` widgets, except those that contain `control`.

        Keys are the class and name of the widget. A difference between such images is an effect that is neither a text
        nor a signal, such as a new size of thumbnails.
        """
        custom = [
            each
            for each in self._page.findChildren(QWidget)
            if each.isVisible() and type(each).__module__.startswith("gui.") and not each.isAncestorOf(control)
        ]
        innermost = [each for each in custom if not any(each.isAncestorOf(other) for other in custom if other != each)]
        return {f"{type(each).__name__} “{_simplify(_get_name(each))}”": each.grab().toImage() for each in innermost}

    def _connect_signals(self) -> None:
        """Record the signals of all `gui` objects that have been created since the last call."""
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
                self._signals[kind] = list(_find_signals(each))
            for signal in self._signals[kind]:
                name = signal.name().toStdString()
                title = f"{kind.__name__}.{name}"
                self._heard[title] = self._heard.get(title, False) or each.isSignalConnected(signal)
                getattr(each, name).connect(partial(self._on_signal, title))

    def list_unconnected_signals(self) -> list[str]:
        """Return the signals of `gui` classes that are connected to nothing but this recorder, in all objects."""
        return sorted(title for title, is_heard in self._heard.items() if not is_heard)

    def _on_signal(self, name: str, *arguments: Any) -> None:
        self.record(f"{name}({', '.join(map(_summarize, arguments))})")


def _record_request(
    process: JsonLinesProcess, walker: Walker, arguments: Sequence[str] = (), stdin: bytes = b"", first: object = None
) -> None:
    """Record the request of a child process instead of starting it. This replaces `JsonLinesProcess.run`.

    The parameters after `walker` are those of the replaced method.
    """
    walker.record(f"request {type(process).__name__} {_summarize(list(arguments))} {_format_request(stdin)}")


Act = tuple[Callable[[], object], str, Callable[[], object] | None]
"""Way to use a control: the action, its name, and a function that restores the state before it."""


def _list_actions(control: QWidget) -> Iterator[Act]:
    """Yield each way to use a control, such as a click, a step, an entry of its menu or a double click."""
    menu = control.menu() if isinstance(control, QToolButton | QPushButton) else None
    if menu is not None:
        menu.aboutToShow.emit()
        yield from _list_menu_actions(menu)
    elif isinstance(control, QAbstractButton):
        yield control.click, "", control.click if control.isCheckable() else None
    elif isinstance(control, QComboBox) and control.count() > 1:
        before = control.currentIndex()
        index = (before + 1) % control.count()
        yield partial(_choose, control, index), f" > {control.itemText(index)}", partial(_choose, control, before)
    elif isinstance(control, QAbstractSpinBox):
        up = bool(control.stepEnabled() & QAbstractSpinBox.StepEnabledFlag.StepUpEnabled)
        yield control.stepUp if up else control.stepDown, " > step", control.stepDown if up else control.stepUp
    elif isinstance(control, QAbstractSlider) and not isinstance(control, QScrollBar):
        add, subtract = (
            QAbstractSlider.SliderAction.SliderSingleStepAdd,
            QAbstractSlider.SliderAction.SliderSingleStepSub,
        )
        forward, back = (add, subtract) if control.value() < control.maximum() else (subtract, add)
        yield partial(control.triggerAction, forward), " > step", partial(control.triggerAction, back)
    elif isinstance(control, QLineEdit) and not isinstance(control.parent(), QAbstractSpinBox | QComboBox):
        if not control.isReadOnly():
            yield partial(_type_text, control, TYPED), f" > {TYPED}", partial(_type_text, control, control.text())
    else:
        if isinstance(control, QAbstractItemView) and control.model() is not None and control.model().rowCount():
            first = control.model().index(0, 0, control.rootIndex())
            control.setCurrentIndex(first)
            if control.model().rowCount(control.rootIndex()) > 1:
                select = control.setCurrentIndex
                yield partial(select, first.siblingAtRow(1)), " > row 2", partial(select, first)
            yield partial(control.clicked.emit, first), " > click", None
            yield partial(control.doubleClicked.emit, first), " > double click", None
            yield partial(control.activated.emit, first), " > Return", None
        for action in control.actions():
            if action.isEnabled() and not action.isSeparator():
                yield action.trigger, f" > {_simplify(action.text())}", None
        yield from _list_context_actions(control)


def _choose(box: QComboBox, index: int) -> None:
    box.setCurrentIndex(index)
    box.activated.emit(index)


def _type_text(line: QLineEdit, text: str) -> None:
    """Replace a text with the keyboard and finish editing."""
    line.selectAll()
    QTest.keyClick(line, Qt.Key.Key_Delete)
    QTest.keyClicks(line, text)
    line.returnPressed.emit()
    line.editingFinished.emit()


def _list_context_actions(control: QWidget) -> Iterator[Act]:
    """Yield the actions in a widget's context menu. The standard menus of Qt's text widgets are left out."""
    position = control.rect().center()
    if isinstance(control, QAbstractItemView):
        position = control.visualRect(control.currentIndex()).center()
    kinds = [kind for kind in type(control).__mro__ if kind.__module__.startswith("gui.")]
    if control.contextMenuPolicy() == Qt.ContextMenuPolicy.CustomContextMenu:
        request: Callable[[], object] = partial(control.customContextMenuRequested.emit, position)
    elif any("contextMenuEvent" in vars(kind) for kind in kinds):
        event = QContextMenuEvent(QContextMenuEvent.Reason.Mouse, position, control.mapToGlobal(position))
        request = partial(control.contextMenuEvent, event)
    else:
        return
    before = set(_find_popups())
    request()
    for popup in _find_popups():
        if popup not in before:
            if isinstance(popup, QMenu):
                yield from _list_menu_actions(popup)
            popup.close()


def _list_menu_actions(menu: QMenu, path: str = "") -> Iterator[Act]:
    for action in menu.actions():
        name = f"{path} > {_simplify(action.text())}"
        if action.menu() is not None:
            yield from _list_menu_actions(action.menu(), name)
        elif not action.isSeparator() and action.isEnabled():
            yield action.trigger, name, None


def _get_name(control: QWidget) -> str:
    """Return a control's accessible name, or the name that a screen reader derives, for example from a button's text."""
    return control.accessibleName() or get_spoken_name(control)


def _get_owner_name(control: QWidget) -> str:
    """Return the class name of a control's nearest parent whose class is defined in `gui`."""
    parent = control.parentWidget()
    while parent is not None and not type(parent).__module__.startswith("gui."):
        parent = parent.parentWidget()
    return type(parent).__name__


def _describe_file_mode(popup: QWidget) -> str:
    """Return the file mode and name filters of a file dialog, or "" for other widgets."""
    return f" {popup.fileMode().name} {popup.nameFilters()}" if isinstance(popup, QFileDialog) else ""


def list_menu_lines(menu: QMenu) -> Iterator[str]:
    """Yield a line with the entries of each group in a menu, followed by the lines of its submenus."""
    groups: list[list[str]] = [[]]
    for action in menu.actions():
        groups += [[]] if action.isSeparator() else []
        groups[-1] += [] if action.isSeparator() else [_simplify(action.text())]
    yield from (f"{_simplify(menu.title())}: {', '.join(group)}" for group in groups)
    for action in menu.actions():
        if action.menu() is not None:
            yield from list_menu_lines(action.menu())


def list_timers(window: QWidget) -> list[str]:
    """Return a line with the name and interval of each timer that is an attribute of its parent."""
    found = set()
    for timer in window.findChildren(QTimer):
        owner = timer.parent()
        names = [name for name, value in vars(owner).items() if value is timer] if hasattr(owner, "__dict__") else []
        is_single = ", once" if timer.isSingleShot() else ""
        found |= {f"{type(owner).__name__}.{name}: {timer.interval()} ms{is_single}" for name in names}
    return sorted(found)


def _shorten_effects(effects: list[str]) -> list[str]:
    return effects[:MAX_CHANGES] + ([f"{len(effects) - MAX_CHANGES} more"] if len(effects) > MAX_CHANGES else [])


def _simplify(text: str) -> str:
    return " ".join(text.replace("&", "").split())[:MAX_CHARACTERS]


def _find_signals(each: QObject) -> Iterator[QMetaMethod]:
    """Yield the public signals of an object that its `gui` classes declare."""
    meta = each.metaObject()
    of_qt = meta
    while not (of_qt.className() or "").startswith("Q"):
        of_qt = of_qt.superClass()
    for index in range(of_qt.methodCount(), meta.methodCount()):
        method = meta.method(index)
        if method.methodType() == QMetaMethod.MethodType.Signal:
            name = method.name().toStdString()
            if not name.startswith(("_", "sig", "resized")):  # pyqtgraph's signals begin with sig
                yield method


def _find_popups() -> list[QWidget]:
    return [each for each in QApplication.topLevelWidgets() if each.isVisible() and not isinstance(each, MainWindow)]


def _format_request(stdin: bytes) -> str:
    """Format the values of a JSON request. Nested objects and fields of the job are left out."""
    values = json.loads(stdin) if stdin else {}
    return str(
        {
            name: value
            for name, value in values.items()
            if not isinstance(value, dict) and name not in Job.__struct_fields__
        }
    )


def _summarize(value: Any) -> str:
    if isinstance(value, float) and value > YEAR_2001:
        return "time"
    if value is None or isinstance(value, bool | int | float | str):
        without_paths = re.sub(r"(?<!\w)/[\w.-]+/[\w./-]*", "…", repr(value))
        return re.sub(r"\s+", " ", without_paths)[:MAX_CHARACTERS]
    if isinstance(value, list | tuple):
        return f"{type(value).__name__}[{', '.join(map(_summarize, value[:3]))}{', …' if len(value) > 3 else ''}]"
    return (
        f"{type(value).__name__}({', '.join(_list_changed_fields(value))})"
        if _get_defaults(type(value))
        else type(value).__name__
    )


def _list_changed_fields(value: Any) -> Iterator[str]:
    """Yield the numbers and texts in a struct or dataclass that differ from their defaults, as "name=value"."""
    for name, default in _get_defaults(type(value)).items():
        field = getattr(value, name)
        if isinstance(field, bool | int | float | str) and field != default:
            yield f"{name}={_summarize(field)}"


def _get_defaults(kind: type) -> dict[str, Any]:
    """Return the default of each field of a struct or dataclass."""
    if issubclass(kind, msgspec.Struct):
        return {field.name: field.default for field in msgspec.structs.fields(kind)}
    return {field.name: field.default for field in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else {}
