"""Log of uncaught exceptions in the window, and of Qt's warnings."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QObject, QtMsgType, Signal, Slot, qInstallMessageHandler

from engine.system import paths
from gui.sources.background import emit_safely
from gui.translation import tr

LOG_NAME = "footplate.window"
MAX_BYTES = 1 << 20
LEVELS = {
    QtMsgType.QtDebugMsg: "DEBUG",
    QtMsgType.QtInfoMsg: "INFO",
    QtMsgType.QtWarningMsg: "WARNING",
    QtMsgType.QtCriticalMsg: "ERROR",
    QtMsgType.QtFatalMsg: "CRITICAL",
}


def log_file() -> Path:
    return paths.home() / "logs" / "window.log"


class _Notifier(QObject):
    """Object with a signal that calls a function on the GUI thread, where the object is created.

    The slot is a method of the object, because Qt calls plain functions on the thread that emits the signal.
    """

    message = Signal(str)

    def __init__(self, show: Callable[[str], None]) -> None:
        super().__init__()
        self._show = show
        self.message.connect(self._on_message)

    @Slot(str)
    def _on_message(self, text: str) -> None:
        self._show(text)


def install_handlers(show: Callable[[str], None]) -> None:
    """Log Qt's warnings, and the uncaught exceptions of all threads.

    Replaces the exception hooks of the process and Qt's message handler. After an exception, `show` is called with a
    message on the thread that called `install_handlers`.
    """
    notifier = _Notifier(show)

    def on_exception(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        """Log an uncaught exception and notify the user. A KeyboardInterrupt is only printed, as usual."""
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error or kind(), trace)
            return
        path = log_exception(error or kind())
        emit_safely(
            notifier.message,
            tr("Something went wrong in the window ({kind}: {error}). Details are in {file}.").format(
                kind=kind.__name__, error=error, file=path
            ),
        )

    sys.excepthook = on_exception
    threading.excepthook = lambda args: on_exception(args.exc_type, args.exc_value, args.exc_traceback)
    qInstallMessageHandler(_on_qt_message)


def log_exception(error: BaseException) -> str:
    """Log an exception with its traceback. Return the path of the log."""
    import logging

    path = open_log()
    logging.getLogger(LOG_NAME).critical("unexpected", exc_info=error)
    return path


@lru_cache(maxsize=1)
def open_log() -> str:
    """Open the log file unless it is open, and return its path.

    If it isn't writable, errors are logged to standard error. Logging is imported here, because its import would delay
    the window.
    """
    import logging
    from logging.handlers import RotatingFileHandler

    handler: logging.Handler
    try:
        paths.make_private_folder(log_file().parent)
        handler = RotatingFileHandler(log_file(), maxBytes=MAX_BYTES, backupCount=3, encoding="utf-8")
        target = str(log_file())
    except OSError:
        handler = logging.StreamHandler()
        target = "standard error"
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger(LOG_NAME)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    return target


def _on_qt_message(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
    """Write a message of Qt to the log."""
    import logging

    open_log()
    logging.getLogger(LOG_NAME).log(getattr(logging, LEVELS.get(kind, "WARNING")), "Qt: %s", text)
