"""Container of the devices panel, next to the pages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import QEvent, QObject, Signal
from PySide6.QtWidgets import QSplitter, QWidget

from gui.actions import Actions
from gui.sources.settings import Settings
from gui.style import theme
from gui.widgets.buttons import styled

_MIN_WIDTH = 290
"""Minimum width of the devices panel in pixels at a text size of 100%."""
_FOLDED_BELOW = 900
"""Width of the window, in pixels at a text size of 100%, below which the panel is hidden until it is requested."""


class DevicesDock(QObject):
    """Controller that shows or hides the devices panel. The user's choice is saved for each page.

    Attributes:
        panel: Devices panel, or a placeholder until it is created.

    Signals:
        switched(bool): the panel has been shown (True) or hidden.
    """

    switched = Signal(bool)

    def __init__(
        self,
        splitter: QSplitter,
        actions: Actions,
        settings: Settings,
        pages: Sequence[str],
        *,
        window: QWidget,
        next_focus: QWidget,
    ) -> None:
        """Add a placeholder for the panel to the splitter.

        Args:
            splitter: Splitter for the panel and the pages.
            actions: Actions of the window.
            settings: Storage of the choices.
            pages: Names of the pages with tabs.
            window: Window whose width decides if there is room for the panel.
            next_focus: Widget that gets the keyboard focus if the panel has it when it is hidden.
        """
        super().__init__(window)
        self._next_focus = next_focus
        self._window, self._splitter, self._actions, self._settings = window, splitter, actions, settings
        self._keys = [f"show_devices_{page}" for page in pages]
        # By page: True if the user wants to see the panel. By default, only the first page shows it.
        self._choices = [settings.flag(key, number == 0) for number, key in enumerate(self._keys)]
        self._is_narrow = False  # True while the window has no room for the panel
        self.panel = styled(QWidget(), "panel")
        splitter.insertWidget(0, self.panel)
        theme.scale_with_text(self.panel.setMinimumWidth, _MIN_WIDTH)
        actions.devices_panel.toggled.connect(self._on_switched)
        for number, page in enumerate(actions.pages):
            page.toggled.connect(partial(self._on_page_toggled, number))
        theme.notifier.changed.connect(self.fold_if_narrow)
        window.installEventFilter(self)

    def put_panel(self, panel: QWidget) -> None:
        """Replace the placeholder with the devices panel, which gets its size and is hidden if the placeholder was."""
        self._splitter.replaceWidget(self._splitter.indexOf(self.panel), panel)
        self.panel.deleteLater()
        self.panel = panel
        theme.scale_with_text(panel.setMinimumWidth, _MIN_WIDTH)

    def restore(self) -> None:
        """Show or hide the panel as the user chose for the current page."""
        self._restore(self._actions.page)

    def save(self) -> None:
        """Save for the next start whether the panel is shown next to each page."""
        for key, is_visible in zip(self._keys, self._choices, strict=True):
            self._settings.set(key, is_visible)

    def fold_if_narrow(self) -> None:
        """Hide the panel if the window is narrower than `_FOLDED_BELOW`. Restore it once the window is wide enough."""
        is_narrow = self._window.width() < theme.scale_pixels(_FOLDED_BELOW)
        if is_narrow != self._is_narrow:
            self._is_narrow = is_narrow
            self.restore()  # hides the panel while `_is_narrow` is True

    def eventFilter(self, window: QObject, event: QEvent) -> bool:
        """Hide or restore the panel when the width of the window changes."""
        if event.type() == QEvent.Type.Resize:
            self.fold_if_narrow()
        return super().eventFilter(window, event)

    def _on_page_toggled(self, number: int, is_selected: bool) -> None:
        if is_selected:
            self._restore(number)

    def _restore(self, number: int) -> None:
        """Show or hide the panel as chosen for the page at this index, without changing the choice."""
        choices = list(self._choices)
        self._actions.devices_panel.setChecked(choices[number] and not self._is_narrow)
        self._choices = choices  # `_on_switched` has stored the state as the user's choice

    def _on_switched(self, is_visible: bool) -> None:
        """Show or hide the panel, and store this as the choice for the current page."""
        self._choices[self._actions.page] = is_visible
        focus = self._window.focusWidget()
        if not is_visible and focus is not None and self.panel.isAncestorOf(focus):
            self._next_focus.setFocus()  # Qt would focus the widget after the panel
        self.panel.setVisible(is_visible)
        self.switched.emit(is_visible)
