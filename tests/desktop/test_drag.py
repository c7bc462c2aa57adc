"""Files that are dragged from another program on a desktop."""

from __future__ import annotations

import shutil
import sys

import pytest

from engine.system import paths
from tests.desktop.desktops import Desktop
from tests.desktop.window import Window
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

FILE_MANAGER = """
import sys
from PySide6.QtCore import QMimeData, Qt, QUrl
from PySide6.QtGui import QDrag
from PySide6.QtWidgets import QApplication, QLabel

class Files(QLabel):
    def mouseMoveEvent(self, event):
        data = QMimeData()
        data.setUrls([QUrl.fromLocalFile(sys.argv[1])])
        drag = QDrag(self)
        drag.setMimeData(data)
        drag.exec(Qt.DropAction.CopyAction)

app = QApplication(["files"])
files = Files("Files", windowTitle="Files")
files.setGeometry(40, 60, 160, 80)
files.show()
app.exec()
"""


def test_folder_is_dragged_from_another_program(x: Desktop) -> None:
    folder = shutil.copytree(paths.sample_dataset(), x.home / "flowers")
    window = Window(x)
    window.wait_for("Train the sample", "push button")
    x.start(sys.executable, "-c", FILE_MANAGER, str(folder))
    wait_until(lambda: window.get_active_title() == "Files", "the other program")
    window.drag((100, 100), (900, 500), lambda: window.find("Drop a dataset folder or a job file to open it"))
    field = window.wait_for("Dataset folder", "text")
    wait_until(lambda: window.text_of(field) == str(folder), "the folder in the form")
    window.wait_for("10 classes, 450 images")
