"""The menu bar: every command of the window where people look for it, and what was used lately."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from PySide6.QtWidgets import QMainWindow, QMenu

from gui.actions import Action, Actions

if TYPE_CHECKING:
    from gui.runs.actions import RunActions


class Recent(NamedTuple):
    """An entry of a menu of recent things: its text, the longer one of its tool tip, and what choosing it does."""

    title: str
    tip: str
    choose: Callable[[], object]


class Menus:
    """Attributes: datasets, runs - the menus that are filled whenever they are opened; selected - for the runs that are
    selected in the list.
    """

    def __init__(self, window: QMainWindow, acts: Actions) -> None:
        self._window = window
        file = self._menu("&File", acts.new_job, None, acts.browse)
        self.datasets = self._submenu(file, "Recent &datasets")
        file.addSeparator()
        file.addActions([acts.open_job, acts.save_job, acts.copy_command, acts.copy_torchrun])
        file.addSeparator()
        file.addActions([acts.open_run, acts.open_remote])
        self.runs = self._submenu(file, "Recent &runs")
        file.addSeparator()
        file.addAction(acts.quit)
        run = self._menu(
            "&Run",
            acts.train,
            acts.start_at_once,
            acts.submit,
            None,
            acts.pause,
            acts.stop,
            None,
            acts.fork,
            acts.queue,
        )
        run.addSeparator()
        self.selected = self._submenu(run, "&Selected runs")
        self.selected.setEnabled(False)
        view = self._menu("&View", *acts.pages, None, acts.devices_panel, acts.job_panel, None)
        self._submenu(view, "&Theme").addActions(list(acts.schemes))
        self._submenu(view, "Te&xt size").addActions([acts.larger_text, acts.smaller_text, acts.usual_text])
        view.addSeparator()
        view.addAction(acts.full_screen)
        view.addAction(acts.close_to_tray)
        tools = (acts.palette, None, *acts.trials, None, acts.hosts, acts.alerts, None)
        self.tools = self._menu("&Tools", *tools, acts.preferences)
        self._menu("&Help", acts.help, acts.shortcuts, acts.whats_new, None, acts.report, acts.about)

    def offer_runs(self, acts: RunActions) -> None:
        """Adds the commands for the runs that are selected in the list."""
        self.selected.addActions([acts.show, acts.folder])
        self.selected.addSeparator()
        self.selected.addActions([acts.resume, acts.change, acts.pause, acts.fork])
        self.selected.addSeparator()
        self.selected.addActions([acts.compare, acts.favourite, acts.rename, acts.delete])
        self.selected.setEnabled(True)

    def _menu(self, title: str, *actions: Action | None) -> QMenu:
        """A menu of the bar, with a line for each None."""
        menu = self._submenu(None, title)
        for action in actions:
            if action is None:
                menu.addSeparator()
            else:
                menu.addAction(action)
        return menu

    def _submenu(self, above: QMenu | None, title: str) -> QMenu:
        menu = self._window.menuBar().addMenu(title) if above is None else above.addMenu(title)
        menu.setToolTipsVisible(True)
        return menu


def fill(menu: QMenu, recent: Iterable[Recent], empty: str, forget: Callable[[], object] | None = None) -> None:
    """Fills a menu of recent things, or says in it that there are none."""
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
        menu.addAction("Clear the list").triggered.connect(lambda _on=False: forget())


def _choose(entry: Recent, _checked: bool = False) -> None:
    entry.choose()
