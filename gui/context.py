"""Parts of the window that its pages and commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtWidgets import QMainWindow

from engine.runs.folder import RunFolder
from gui.actions import Actions
from gui.form.panel import JobPanel
from gui.header import Header
from gui.sources.settings import Settings
from gui.status_bar import StatusBar
from gui.train.page import TrainPage


@dataclass(frozen=True)
class AppContext:
    """Widgets and functions of the main window that its pages and commands use.

    All of them exist before the window is first painted.
    """

    window: QMainWindow
    settings: Settings
    actions: Actions
    header: Header
    job_panel: JobPanel
    train: TrainPage
    status: StatusBar
    show_message: Callable[..., None]
    """Function that shows a message about the window with a severity, "warning" by default. "" hides the message."""
    show_run: Callable[[RunFolder], None]
    """Function that opens a run on the Train page."""
    show_form: Callable[[], None]
    """Function that shows the form for a new job on the Train page."""
    show_help: Callable[[str], None]
    """Function that opens a page of the user guide, or the guide's current page for ""."""
    show_alerts: Callable[[], None]
    """Function that brings the window to the front and shows the alerts."""
