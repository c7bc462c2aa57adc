"""Which panels stand beside each page: Train has the devices and the job, the others the whole width until asked."""

from __future__ import annotations

from functools import partial

from PySide6.QtCore import QObject

from gui.actions import PAGES, TRAIN, Actions
from gui.sources.settings import Settings


class PagePanels(QObject):
    """Turns the switches of the panels to what the page in front last had."""

    def __init__(self, actions: Actions, settings: Settings) -> None:
        super().__init__(actions)
        self._actions, self._settings = actions, settings
        self._switches = {"devices": actions.devices_panel, "job": actions.job_panel}
        self._shown = {
            (name, number): settings.flag(_key(name, number), number == TRAIN)
            for name in self._switches
            for number in range(len(PAGES))
        }
        for name, switch in self._switches.items():
            switch.toggled.connect(partial(self._switched, name))
        for number, page in enumerate(actions.pages):
            page.toggled.connect(partial(self._turned_to, number))
        self._turned_to(actions.page, True)

    def keep(self) -> None:
        """Writes it down for the next opening."""
        for (name, number), shown in self._shown.items():
            self._settings.set(_key(name, number), shown)

    def _turned_to(self, number: int, in_front: bool) -> None:
        if in_front:
            for name, switch in self._switches.items():
                switch.setChecked(self._shown[name, number])

    def _switched(self, name: str, on: bool) -> None:
        self._shown[name, self._actions.page] = on


def _key(name: str, number: int) -> str:
    return f"show_{name}_{PAGES[number].lower()}"
