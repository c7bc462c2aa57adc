"""About dialog: versions and licenses of Footplate and its packages."""

from __future__ import annotations

import re
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import NamedTuple

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QHeaderView,
    QLabel,
    QPlainTextEdit,
    QSplitter,
    QTableWidgetItem,
    QWidget,
)

from engine.system.files import read_file
from gui.translation import tr
from gui.widgets.buttons import styled
from gui.widgets.column_model import create_text_table
from gui.widgets.labels import heading_label
from gui.widgets.layouts import resize_with_text, vbox

_ROOT = "footplate"
_NAME = re.compile(r"[\w.-]+")
_LICENSE_FILE = re.compile(r"(licen[cs]e|copying|notice)", re.IGNORECASE)
_LONGEST_LICENSE = 60
"""Maximum length of a license name in characters. In old packages, a longer field contains the license text."""


class Package(NamedTuple):
    """Installed package, its version and the name of its license."""

    name: str
    version: str
    license: str


def list_packages() -> list[Package]:
    """Return Footplate, followed by all of its installed dependencies in alphabetical order."""
    found: dict[str, Package] = {}  # by normalized name
    pending = [_ROOT]
    while pending:
        name = pending.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            dist = distribution(name)
        except PackageNotFoundError:
            continue
        found[key] = Package(dist.metadata["Name"], dist.version, find_license(dist))
        requirements = [line for line in dist.requires or () if "extra ==" not in line]
        pending += [match[0] for match in map(_NAME.match, requirements) if match is not None]
    return [found[key] for key in sorted(found, key=lambda key: (key != _ROOT, key))]


def find_license(dist: Distribution) -> str:
    """Return the name of a package's license, or "" if it is unknown.

    It is read from the first of these that exists: the SPDX expression, a short license field, the classifiers.
    """
    metadata = dist.metadata.json
    # Old versions of setuptools write this for a missing license.
    field = str(metadata.get("license", "")).removeprefix("UNKNOWN")
    if expression := metadata.get("license_expression", ""):
        return str(expression)
    if field and "\n" not in field and len(field) <= _LONGEST_LICENSE:
        return field
    classifiers = [line for line in metadata.get("classifier", ()) if line.startswith("License ::")]
    return ", ".join(line.rpartition(":: ")[2] for line in classifiers)


def read_license_text(name: str) -> str:
    """Return the text of a package's license files, or a sentence if there are none."""
    dist = distribution(name)
    files = [
        file for file in dist.files or () if _LICENSE_FILE.search(file.name) and file.suffix not in (".py", ".pyc")
    ]
    texts = [read_file(str(file.locate())).decode() for file in files]
    return "\n\n".join(filter(None, texts)) or str(
        dist.metadata.json.get("license") or tr("This package contains no license text.")
    )


class AboutDialog(QDialog):
    """Non-modal dialog with all packages and their license texts."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("About Footplate"))
        styled(self, "panel")
        resize_with_text(self, 680, 560)
        self._packages = list_packages()
        version = next((each.version for each in self._packages if each.name == _ROOT), tr("not installed"))
        heading = heading_label(tr("Footplate {version}").format(version=version))
        about = QLabel(
            tr("Monitors the GPUs of a workstation and trains vision models on them. Built with:"),
            wordWrap=True,
        )
        self.table = create_text_table(tr("Packages and their licenses"), (tr("Package"), tr("Version"), tr("License")))
        self.table.setRowCount(len(self._packages))
        self.table.horizontalHeader().setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        self.table.horizontalHeader().setStretchLastSection(True)
        for row, package in enumerate(self._packages):
            for column, text in enumerate(package):
                item = QTableWidgetItem(text or tr("not stated"))
                item.setToolTip(text)
                self.table.setItem(row, column, item)
        self.text = styled(QPlainTextEdit(readOnly=True), name=tr("License text"))
        self.text.setTabChangesFocus(True)
        self.table.currentCellChanged.connect(lambda row, *_rest: self._show_license(row))
        parts = QSplitter(Qt.Orientation.Vertical)
        parts.addWidget(self.table)
        parts.addWidget(self.text)
        parts.setSizes([300, 180])
        self.setLayout(vbox(heading, about, (parts, 1), spacing=10, margins=(14, 12, 14, 14)))
        self.table.setCurrentCell(0, 0)

    def _show_license(self, row: int) -> None:
        if 0 <= row < len(self._packages):
            self.text.setPlainText(read_license_text(self._packages[row].name))
