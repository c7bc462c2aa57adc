"""The window's process: checks that there is a screen, and opens the window."""

from __future__ import annotations

import ctypes
import locale
import os
import sys

NO_DISPLAY = "There is no display to open a window on; use `footplate train` in a terminal instead."
NO_CURSOR_LIBRARY = (
    "The window needs libraries that are missing here; run\n"
    "  sudo apt install libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-image0 libxcb-render-util0 "
    "libxcb-xkb1 libxkbcommon-x11-0 libegl1\n"
    "or use `footplate train` in a terminal instead."
)
X_LIBRARIES = (
    "libxcb-cursor.so.0",
    "libxcb-icccm.so.4",
    "libxcb-keysyms.so.1",
    "libxcb-image.so.0",
    "libxcb-render-util.so.0",
    "libxcb-xkb.so.1",
    "libxkbcommon-x11.so.0",
)


def why_no_window() -> str | None:
    """Why no window can be opened here, in words, or None where one can.

    Qt itself ends the process with abort() where its platform plugin cannot load, so that it has to be told before.
    """
    if not sys.platform.startswith("linux"):
        return None
    platform = os.environ.get("QT_QPA_PLATFORM", "")
    if not platform and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        return NO_DISPLAY
    if platform.startswith("xcb") or (not platform and not os.environ.get("WAYLAND_DISPLAY")):
        return None if all(map(_loads, X_LIBRARIES)) else NO_CURSOR_LIBRARY
    return None


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def main() -> int:
    """Opens the window; returns the exit code, 2 where there is no screen for it."""
    why = why_no_window()
    if why is not None:
        print(why, file=sys.stderr)
        return 2
    from PySide6.QtGui import QIcon
    from PySide6.QtWidgets import QApplication

    from gui import faults, icons, signals, theme
    from gui.main_window import MainWindow

    app = QApplication(sys.argv[:1])
    # Qt may set the user's number format for the whole process; engine and files speak with a point.
    locale.setlocale(locale.LC_NUMERIC, "C")
    app.setApplicationName("Footplate")
    app.setDesktopFileName("footplate")
    app.setWindowIcon(QIcon(icons.pixmap("footplate", "#000000", 128)))
    window = MainWindow()
    # After the window is made: each of its parts is styled once then, rather than at every change of parent.
    theme.apply(app)
    faults.install(window.show_message)
    interruptions = signals.Interruptions(app)
    interruptions.interrupted.connect(window.close)
    window.completed.connect(faults.open_log)
    window.show()
    return app.exec()
