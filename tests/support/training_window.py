"""The real window, set up to train for long, for the benchmarks that drive it."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from PySide6 import __version__ as qt
from PySide6.QtWidgets import QApplication

from gui.main_window import MainWindow
from gui.style import theme


def where() -> str:
    """Return hardware and versions for the first line of a report."""
    python = f"Python {platform.python_version()}"
    return f"{platform.platform()}, {os.cpu_count()} cores, {python}, PySide6 {qt}, {QApplication.platformName()}"


@contextmanager
def training_window(app: QApplication, dataset: str = "", **fields: object) -> Iterator[MainWindow]:
    """Yield the shown window with an empty home; its form has `dataset` ("" for the sample) and `fields`."""
    with tempfile.TemporaryDirectory() as home:
        os.environ |= {"FOOTPLATE_HOME": home, "XDG_RUNTIME_DIR": home}
        theme.apply(app)
        window = MainWindow()
        if dataset:
            window.job_panel.set_dataset(dataset)
        for name, value in {"model": "mnist_cnn", "epochs": 10_000, **fields}.items():
            window.job_panel.set_field(name, value)
        window.resize(1280, 800)
        window.show()
        yield window
