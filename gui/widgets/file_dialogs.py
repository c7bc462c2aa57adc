"""File dialogs that don't block the window."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QWidget

from engine.system import paths
from gui.sources.background import Background

PATIENCE_S = 0.05
"""Maximum seconds to wait for the disk before a dialog opens."""


def choose_path(
    parent: QWidget, title: str, chosen: Callable[[str], None], *, folder: bool = False, start: str = ""
) -> QFileDialog:
    """Open a non-modal dialog for a file or, if `folder`, a folder, and call `chosen` with the selected path.

    The dialog starts at `start`, or at the nearest parent folder that exists. It starts in the home folder if `start` is
    empty or the sample dataset, or if the disk doesn't respond quickly.
    """
    search = Background(lambda: _find_existing_folder(start), parent)
    folders: list[str] = []  # the result, or nothing if the disk hasn't responded in time
    search.done.connect(folders.append)
    search.start()
    search.finish(PATIENCE_S)
    mode = QFileDialog.FileMode.Directory if folder else QFileDialog.FileMode.ExistingFile
    dialog = _make_dialog(parent, title, mode, folders[0] if folders else "")
    dialog.setOption(QFileDialog.Option.ShowDirsOnly, folder)
    dialog.fileSelected.connect(chosen)
    dialog.show()
    return dialog


def choose_files(parent: QWidget, title: str, chosen: Callable[[list[str]], None]) -> QFileDialog:
    """Open a non-modal dialog and call `chosen` with the paths of the selected files."""
    dialog = _make_dialog(parent, title, QFileDialog.FileMode.ExistingFiles)
    dialog.filesSelected.connect(chosen)
    dialog.show()
    return dialog


def add_timestamp(name: str) -> str:
    """Return a name for a new file, as in "footplate-2026-03-01-140231-curves.csv"."""
    return f"footplate-{time.strftime('%Y-%m-%d-%H%M%S')}-{name}"


def choose_target(parent: QWidget, title: str, name: str, chosen: Callable[[Path], None]) -> QFileDialog:
    """Open a non-modal save dialog, and call `chosen` with the path, which always has the suffix of `name`."""
    suffix = Path(name).suffix.removeprefix(".")
    dialog = _make_dialog(parent, title, QFileDialog.FileMode.AnyFile)
    dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
    dialog.setNameFilter(f"{suffix.upper()} (*.{suffix})")
    dialog.setDefaultSuffix(suffix)
    dialog.selectFile(name)
    dialog.fileSelected.connect(lambda path: chosen(Path(path)))
    dialog.show()
    return dialog


def reveal(path: Path) -> bool:
    """Open a folder in the desktop's file manager. Return False if that isn't possible."""
    return QDesktopServices.openUrl(QUrl.fromLocalFile(str(path)))


def _make_dialog(parent: QWidget, title: str, mode: QFileDialog.FileMode, folder: str = "") -> QFileDialog:
    """Create a non-modal dialog that starts in `folder`, by default the home, and deletes itself when it is closed."""
    dialog = QFileDialog(parent, title, folder or str(Path.home()))
    dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
    dialog.setFileMode(mode)
    dialog.setWindowModality(Qt.WindowModality.NonModal)
    return dialog


def _find_existing_folder(start: str) -> str:
    """Return `start` or its nearest existing parent. Return the home for "" and for the sample dataset."""
    path = Path(os.path.expanduser(start))
    if not start or path.is_relative_to(paths.sample_dataset()):
        return str(Path.home())
    while not os.path.isdir(path) and path != path.parent:
        path = path.parent
    return str(path)
