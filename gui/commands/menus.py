"""Menu bar with every command of the window, and menus of recent datasets and runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMainWindow, QMenu

from gui.actions import Actions
from gui.translation import tr

if TYPE_CHECKING:
    from gui.runs.actions import RunActions


class Recent(NamedTuple):
    """Entry of a menu of recent things."""

    title: str
    tip: str
    choose: Callable[[], object]


class Menus:
    """Menus of the menu bar; the owner fills `datasets` and `runs` whenever they open."""

    def __init__(self, window: QMainWindow, acts: Actions) -> None:
        self._window = window
        file = self._menu("&File", acts.menu_groups("file"))
        self.datasets = self._submenu(tr("Recent &datasets"), file, before=acts.open_job)
        self.runs = self._submenu(tr("Recent &runs"), file, before=acts.quit)
        run = self._menu("&Run", acts.menu_groups("run"))
        run.addSeparator()
        self.selected = self._submenu(tr("&Selected runs"), run)
        self.selected.setEnabled(False)
        view = self._menu("&View", acts.menu_groups("view"))
        for title, name in (("&Theme", "theme"), (tr("Te&xt size"), "text")):
            self._submenu(title, view, before=acts.full_screen).addActions(acts.menu_groups(name)[0])
        self.tools = self._menu("&Tools", acts.menu_groups("tools"))
        self._menu("&Help", acts.menu_groups("help"))

    def offer_runs(self, acts: RunActions) -> None:
        """Add the commands for the runs that are selected in the list."""
        _add_groups(
            self.selected,
            [
                [acts.show, acts.folder],
                [acts.resume, acts.change, acts.pause, acts.fork],
                [acts.compare, acts.favourite, acts.rename, acts.delete],
            ],
        )
        self.selected.setEnabled(True)

    def _menu(self, title: str, groups: Sequence[Sequence[QAction]]) -> QMenu:
        menu = self._window.menuBar().addMenu(title)
        menu.setToolTipsVisible(True)
        _add_groups(menu, groups)
        return menu

    def _submenu(self, title: str, menu: QMenu, before: QAction | None = None) -> QMenu:
        """Add a menu at the end, or before the separator in front of the action `before`."""
        submenu = QMenu(title, menu)
        submenu.setToolTipsVisible(True)
        if before is None:
            menu.addMenu(submenu)
        else:
            actions = menu.actions()
            menu.insertMenu(actions[actions.index(before) - 1], submenu)
        return submenu


def _add_groups(menu: QMenu, groups: Sequence[Sequence[QAction]]) -> None:
    for number, group in enumerate(groups):
        if number:
            menu.addSeparator()
        menu.addActions(list(group))


def fill(menu: QMenu, recent: Iterable[Recent], empty: str, forget: Callable[[], object] | None = None) -> None:
    """Fill a menu of recent things; show the text `empty` if there are none."""
    menu.clear()
    entries: Sequence[Recent] = list(recent)
    for entry in entries:
        action = menu.addAction(entry.title.replace("&", "&&"))
        action.setToolTip(entry.tip)
        action.triggered.connect(partial(_choose, entry))
    if not entries:
        menu.addAction(empty).setEnabled(False)
    elif forget is not None:
        menu.addSeparator()
        menu.addAction(tr("Clear the list")).triggered.connect(lambda _on=False: forget())


def _choose(entry: Recent, _checked: bool = False) -> None:
    entry.choose()
