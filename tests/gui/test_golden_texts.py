"""Texts of the form, the settings and empty pages, compared with a golden file.

    FOOTPLATE_WRITE_TEXTS=1 pytest -n 0 tests/gui/test_golden_texts.py

writes the file again. Review its diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QAbstractButton, QComboBox, QLabel, QLineEdit, QWidget

from gui.advice.page import AdvicePage
from gui.alerts.view import AlertsView
from gui.compare.page import ComparePage
from gui.dataset.page import DatasetPage
from gui.finders.batch_size import BatchPage
from gui.finders.learning_rate import RatePage
from gui.form.panel import JobPanel
from gui.preferences.dialog import PreferencesDialog
from gui.preferences.store import Preferences
from gui.run.classes.view import ClassesView
from gui.run.model.view import ModelView
from gui.run.predictions.view import PredictionsView
from gui.run.use.view import UseView
from gui.runs.page import RunsPage
from gui.sources.run_list import RunList
from gui.sources.settings import Settings
from gui.split_points.page import SplitPointsPage
from tests.gui.alerts.conftest import AlertsRecorder
from tests.support.golden import check_section
from tests.support.widgets import ShowWidget

GOLDEN = Path(__file__).with_name("golden_texts.txt")
VARIES = re.compile(r"(?<![\w<])/[\w./-]+|\d+")
"""Regular expression for paths and numbers, which are replaced because some of them depend on the machine."""


def alerts() -> AlertsView:
    view = AlertsView(AlertsRecorder(Path(os.environ["FOOTPLATE_HOME"])).alerts)
    for row in view.rows.values():
        row.fold.click()
    return view


def job_panel() -> JobPanel:
    panel = JobPanel()
    for section in panel.form.sections:
        section.set_open(True)
    assert panel.form.fields.model.panel  # creates the list of all models
    return panel


PAGES: dict[str, Callable[[], QWidget]] = {
    "form": job_panel,
    "settings": lambda: PreferencesDialog(Preferences(Settings())),
    "alerts": alerts,
    "advice": AdvicePage,
    "batch size": BatchPage,
    "learning rate": RatePage,
    "split_points": SplitPointsPage,
    "dataset": DatasetPage,
    "runs": lambda: RunsPage(RunList()),
    "comparison": lambda: ComparePage(RunList()),
    "classes": ClassesView,
    "predictions": PredictionsView,
    "model": ModelView,
    "use": UseView,
}


def list_texts(page: QWidget) -> Iterator[str]:
    """Yield all texts of a page, including hidden ones and those for screen readers."""
    for widget in page.findChildren(QWidget):
        if isinstance(widget, QLabel | QAbstractButton):
            yield widget.text()
        elif isinstance(widget, QComboBox):
            yield from (widget.itemText(index) for index in range(min(widget.count(), 40)))
        elif isinstance(widget, QLineEdit):
            yield widget.placeholderText()
        yield from (widget.toolTip(), widget.accessibleName(), widget.accessibleDescription())


@pytest.mark.parametrize("name", PAGES)
def test_texts_equal_the_golden_file(show_widget: ShowWidget, name: str) -> None:
    found = {" ".join(VARIES.sub("#", text).split()) for text in list_texts(show_widget(PAGES[name]()))}
    check_section(GOLDEN, name, "\n".join(sorted(found - {"", "#"})))
