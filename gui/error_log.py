"""Where the window's own faults go: a log file, and one line in the window."""

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

LOG_NAME = "footplate.window"
KEPT_BYTES = 1 << 20
LEVELS = {
    QtMsgType.QtDebugMsg: "DEBUG",
    QtMsgType.QtInfoMsg: "INFO",
    QtMsgType.QtWarningMsg: "WARNING",
    QtMsgType.QtCriticalMsg: "ERROR",
    QtMsgType.QtFatalMsg: "CRITICAL",
}


def log_file() -> Path:
    return paths.home() / "logs" / "window.log"


class _Teller(QObject):
    """Says something on the window's thread, whichever thread it is told on."""

    message = Signal(str)

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say
        self.message.connect(self._pass_on)

    @Slot(str)
    def _pass_on(self, text: str) -> None:
        self._say(text)


def install(say: Callable[[str], None]) -> None:
    """Sends exceptions that nothing catches, on whatever thread, and Qt's warnings to the log; tells `say` of the
    exceptions, on the thread that calls this.
    """
    teller = _Teller(say)

    def caught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error or kind(), trace)
            return
        where = record(error or kind())
        emit_safely(
            teller.message, f"Something went wrong in the window ({kind.__name__}: {error}). Details are in {where}."
        )

    sys.excepthook = caught
    threading.excepthook = lambda given: caught(given.exc_type, given.exc_value, given.exc_traceback)
    qInstallMessageHandler(_qt_said)


def record(error: BaseException) -> str:
    """Writes an exception with its traceback to the log; where that is."""
    import logging

    where = open_log()
    logging.getLogger(LOG_NAME).critical("unexpected", exc_info=error)
    return where


@lru_cache(maxsize=1)
def open_log() -> str:
    """Opens the log file once, or leaves standard error where it cannot be written; answers where the log is.

    Logging is imported here alone, since a window should be on screen before that.
    """
    import logging
    from logging.handlers import RotatingFileHandler

    handler: logging.Handler
    try:
        paths.private_folder(log_file().parent)
        handler = RotatingFileHandler(log_file(), maxBytes=KEPT_BYTES, backupCount=3, encoding="utf-8")
        where = str(log_file())
    except OSError:
        handler = logging.StreamHandler()
        where = "standard error"
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log = logging.getLogger(LOG_NAME)
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    return where


def _qt_said(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
    import logging

    open_log()
    logging.getLogger(LOG_NAME).log(getattr(logging, LEVELS.get(kind, "WARNING")), "Qt: %s", text)
