"""Entry point of the window's process: checks the display, and opens the window."""

from __future__ import annotations

import builtins
import ctypes
import gc
import locale
import os
import sys
from typing import TYPE_CHECKING

from gui.translation import tr

if TYPE_CHECKING:
    from PySide6.QtWidgets import QApplication

    from gui.single_instance import OpenRequest, SingleInstance

NO_DISPLAY = tr("No display to open a window on; use `footplate train` in a terminal instead.")
NO_ANSWER = tr("The display {display} does not respond; use `footplate train` in a terminal instead.")
NO_LIBRARY = tr(
    "The window needs {library}, which is not installed. Run\n"
    "  sudo apt install --no-install-recommends libegl1 libgl1 libglib2.0-0 libfontconfig1 libdbus-1-3 libxkbcommon0 "
    "libxkbcommon-x11-0 libxcb-cursor0 libxcb-icccm4 libxcb-keysyms1 libxcb-shape0\n"
    "(or your system's equivalent), or use `footplate train` in a terminal instead."
)
X_LIBRARIES = (
    "libxcb-cursor.so.0",
    "libxcb-icccm.so.4",
    "libxcb-image.so.0",
    "libxcb-keysyms.so.1",
    "libxcb-randr.so.0",
    "libxcb-render-util.so.0",
    "libxcb-shape.so.0",
    "libxcb-sync.so.1",
    "libxcb-xfixes.so.0",
    "libxcb-xkb.so.1",
    "libxkbcommon-x11.so.0",
)
"""Libraries that Qt's xcb plugin needs, but a minimal Debian or Ubuntu doesn't have."""


def find_display_problem() -> str | None:
    """Return the reason why no window can be opened, or None if one can.

    This is checked in advance, because Qt calls abort() if it can't load its platform plugin.
    """
    if not sys.platform.startswith("linux"):
        return None
    platform = os.environ.get("QT_QPA_PLATFORM", "")
    if not platform and not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
        return NO_DISPLAY
    uses_x = platform.startswith("xcb") or (not platform and not os.environ.get("WAYLAND_DISPLAY"))
    if uses_x:
        missing = next((library for library in X_LIBRARIES if not _can_load(library)), None)
        if missing:
            return NO_LIBRARY.format(library=missing)
        return None if _x_server_responds() else NO_ANSWER.format(display=os.environ.get("DISPLAY", ""))
    return None


def _can_load(library: str) -> bool:
    """Return True if the system has a shared library."""
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _x_server_responds() -> bool:
    """Return True if the X server in DISPLAY accepts connections. The variable may be from an old session."""
    xcb = ctypes.CDLL("libxcb.so.1")
    xcb.xcb_connect.restype = ctypes.c_void_p
    connection = ctypes.c_void_p(xcb.xcb_connect(None, None))
    has_error = xcb.xcb_connection_has_error(connection)
    xcb.xcb_disconnect(connection)
    return not has_error


def main(path: str = "") -> int:
    """Open the window, or bring an open one to the front. Return the exit code, which is 2 without a display.

    `path` is a dataset folder or job file to open, or "" for none.
    """
    # A start leaves little garbage, and collections would take a twelfth of its time. Later, GarbageCollector collects.
    gc.disable()
    # PySide's import function reads the source of each module to find its optional features. No module here uses them.
    builtins.__import__ = getattr(builtins, "__orig_import__", builtins.__import__)
    problem = find_display_problem()
    if problem is not None:
        print(problem, file=sys.stderr)
        return 2
    try:
        import PySide6.QtWidgets  # noqa: F401
    except ImportError as error:  # libraries such as libEGL, on which Qt depends, are missing
        # The message is "libEGL.so.1: cannot open shared object file: …".
        print(NO_LIBRARY.format(library=str(error).partition(":")[0]), file=sys.stderr)
        return 2
    from gui.single_instance import SingleInstance, make_open_request

    request, instance = make_open_request(path), SingleInstance()
    try:
        if instance.forward_request(request):  # an open window shows it
            return 0
    except OSError as error:  # includes TimeoutError
        print(f"footplate: opening another window, since {error}.", file=sys.stderr)
    return _show_window(request, instance)


def _show_window(request: OpenRequest, instance: SingleInstance) -> int:
    """Show the window for `request` until it is closed, and return the exit code.

    Later starts pass their requests to it through `instance`.
    """
    from engine.contract.catalogue import load_catalogue
    from gui import error_log
    from gui.event_loop import GarbageCollector, Interruptions
    from gui.main_window import MainWindow
    from gui.preferences.store import Preferences
    from gui.sources.inspector import PluginReader
    from gui.sources.settings import Settings
    from gui.style import theme

    app, settings = _create_application(), Settings()
    preferences = Preferences(settings)
    theme.initialize(app, preferences.text("theme"), round(preferences.number("text_percent")))
    window = MainWindow(settings)
    # After the window is created, so that each part is styled once and not at every change of its parent.
    theme.apply(app)
    error_log.install_handlers(window.show_message)
    interruptions = Interruptions(app)
    interruptions.interrupted.connect(window.quit)
    window.closed.connect(app.quit)
    window.completed.connect(error_log.open_log)
    plugins = PluginReader()
    plugins.done.connect(lambda: window.form.set_catalogue(load_catalogue()))
    plugins.failed.connect(window.show_message)
    window.completed.connect(plugins.start)
    if request.path:
        window.completed.connect(lambda: window.open_paths([request.path]))
    instance.requested.connect(lambda later: window.bring_to_front(later.path, later.activation_token))
    window.completed.connect(instance.listen)
    window.show()
    collector = GarbageCollector()
    code = app.exec()
    collector.close()
    plugins.close()
    instance.close()
    return code


def _create_application() -> QApplication:
    """Create the Qt application. The window uses the user's number format, and the rest of the process Python's."""
    from PySide6.QtCore import QLocale
    from PySide6.QtGui import QIcon
    from PySide6.QtWidgets import QApplication

    from gui.format import use_locale
    from gui.style import icons

    app = QApplication(sys.argv[:1])
    # Qt may set the user's number format for the whole process; the engine and files need points.
    locale.setlocale(locale.LC_NUMERIC, "C")
    use_locale(QLocale.system())
    app.setApplicationName("Footplate")
    app.setDesktopFileName("footplate")
    app.setWindowIcon(QIcon(icons.pixmap("footplate", "#000000", 128)))
    return app
