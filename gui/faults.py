"""Where the window's own faults go: a log file, and one line in the window."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

from engine.contract import paths

log = logging.getLogger("footplate.window")

LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def log_file() -> Path:
    return paths.home() / "logs" / "window.log"


def install(say: Callable[[str], None]) -> None:
    """Sends exceptions that nothing catches, and Qt's warnings, to the log; tells `say` of the exceptions."""
    where = _open_log()

    def caught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if issubclass(kind, KeyboardInterrupt):
            sys.__excepthook__(kind, error, trace)
            return
        log.critical("unexpected", exc_info=(kind, error, trace))
        say(f"Something went wrong in the window ({kind.__name__}: {error}). Details are in {where}.")

    sys.excepthook = caught
    qInstallMessageHandler(_qt_said)


def _open_log() -> str:
    """Opens the log file, or leaves standard error where it cannot be written."""
    handler: logging.Handler
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        handler = RotatingFileHandler(log_file(), maxBytes=1 << 20, backupCount=3, encoding="utf-8")
        where = str(log_file())
    except OSError:
        handler = logging.StreamHandler()
        where = "standard error"
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    return where


def _qt_said(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
    log.log(LEVELS.get(kind, logging.WARNING), "Qt: %s", text)
