"""Export to CSV and PNG files."""

from __future__ import annotations

import csv
import os
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import QObject, Signal
from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QApplication, QLabel, QWidget
from pytestqt.qtbot import QtBot

from engine.contract.devices import CPU, device_key
from gui.sources.devices.history import DeviceHistory
from gui.sources.export import (
    ExportError,
    copy_excerpt,
    export_png,
    format_reading,
    save_image,
    save_in_background,
    write_csv,
)
from tests.gui.sources.devices.snapshots import UUIDS, gpu, snapshot

START = 1_700_000_000.0
EXPECTED = ("utilization_percent", "memory_used_bytes", "power_w", "fan_percent")
FULL = Path("/dev/full")


@pytest.fixture
def history() -> DeviceHistory:
    """Return ten seconds of readings of a local and a remote GPU.

    The local GPU reports its power only every other second, the other one never.
    """
    created = DeviceHistory()
    for second in range(10):
        power = 300.25 + second if second % 2 else None
        created.add(snapshot(gpu(0, power_w=power), time=START + second))
        created.add(snapshot(gpu(1, power_w=None), time=START + second + 0.5), host="ws2")
    return created


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_export_csv_writes_full_rate(history: DeviceHistory, tmp_path: Path) -> None:
    other = device_key("ws2", UUIDS[1])
    rows = read(write_csv(tmp_path / "a.csv", copy_excerpt(history, [UUIDS[0], other], EXPECTED, START + 2, START + 5)))
    here, folder = [row for row in rows if not row["host"]], [row for row in rows if row["host"] == "ws2"]
    assert [float(row["time_s"]) for row in here] == [START + n for n in (2, 3, 4, 5)]
    assert [float(row["time_s"]) for row in folder] == [START + n + 0.5 for n in (2, 3, 4)]
    assert datetime.fromisoformat(here[0]["time"]) == datetime.fromtimestamp(START + 2, UTC)
    assert [row["power_w"] for row in here] == ["", "303.25", "", "305.25"]
    assert {row["power_w"] for row in folder} == {""}
    assert {(row["device"], row["name"], row["utilization_percent"]) for row in here} == {(UUIDS[0], "GPU 1", "87")}
    assert {(row["device"], row["name"]) for row in folder} == {(UUIDS[1], "ws2 GPU 0")}
    assert {row["memory_used_bytes"] for row in rows} == {str(41 << 30)}
    assert "fan_percent" not in rows[0]


def test_export_csv_quotes_names(history: DeviceHistory, tmp_path: Path) -> None:
    history.titles[CPU] = 'CPU, "big"'
    rows = read(write_csv(tmp_path / "a.csv", copy_excerpt(history, [CPU], EXPECTED, START, START)))
    assert [row["name"] for row in rows] == ['CPU, "big"']
    lines = (tmp_path / "a.csv").read_bytes()
    assert lines.count(b"\r") == lines.count(b"\r\n") == lines.count(b"\n") == 2


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), ""),
        (0.0, "0"),
        (87.0, "87"),
        (float(np.float32(61.7)), "61.7"),
        (float(141 << 30), "151397597184"),
    ],
)
def test_written_formats_numbers(value: float, text: str) -> None:
    assert format_reading(value) == text


class Messages(QObject):
    """Owner of a signal, with the messages that it has emitted."""

    message = Signal(str, str)

    def __init__(self) -> None:
        super().__init__()
        self.received: list[tuple[str, str]] = []
        self.message.connect(lambda text, severity: self.received.append((text, severity)))


def test_export_csv_does_not_block(history: DeviceHistory, tmp_path: Path, qtbot: QtBot) -> None:
    messages, target = Messages(), tmp_path / "b.csv"
    rows = copy_excerpt(history, [UUIDS[0]], EXPECTED, START, START + 99)
    save_in_background(lambda: write_csv(target, rows), messages.message, "Saved {path}.", messages)
    history.add(snapshot(gpu(0), time=START + 50))  # after the copy
    qtbot.waitUntil(lambda: messages.received == [(f"Saved {target}.", "info")])
    assert len(read(target)) == 10


def test_export_csv_reports_error(history: DeviceHistory, tmp_path: Path, qtbot: QtBot) -> None:
    messages, target = Messages(), tmp_path / "no such folder" / "c.csv"
    rows = copy_excerpt(history, [CPU], EXPECTED, 0, 2 * START)
    save_in_background(lambda: write_csv(target, rows), messages.message, "Saved {path}.", messages)
    qtbot.waitUntil(lambda: len(messages.received) == 1)
    text, severity = messages.received[0]
    assert severity == "warning"
    assert text.startswith("Could not save")
    assert "No such file or directory" in text
    assert "Choose another folder" in text


@pytest.mark.skipif(not FULL.exists(), reason="needs /dev/full")
def test_export_csv_full_disk_keeps_old_file(
    history: DeviceHistory, tmp_path: Path, styled: QApplication, qtbot: QtBot
) -> None:
    target = tmp_path / "d"
    target.write_text("as it was")
    (tmp_path / ".d.part").symlink_to(FULL)
    rows_of_gpu = copy_excerpt(history, [UUIDS[0]], EXPECTED, START, START + 9)
    with pytest.raises(ExportError, match="No space left on device"):
        write_csv(target, rows_of_gpu)
    assert target.read_text() == "as it was"
    assert os.listdir(tmp_path).count(".d.part") == 0
    (tmp_path / ".d.part").symlink_to(FULL)
    label = QLabel("picture")
    qtbot.addWidget(label)
    with pytest.raises(ExportError, match="No space left on device"):
        export_png(target, label.grab())
    assert target.read_text() == "as it was"


def test_export_png_writes_widget(tmp_path: Path, styled: QApplication, qtbot: QtBot) -> None:
    widget = QWidget()
    widget.setStyleSheet("background: #123456")
    widget.resize(320, 200)
    qtbot.addWidget(widget)
    messages = Messages()
    save_image(tmp_path / "e.png", widget.grab(), messages.message)
    image = QImage(str(tmp_path / "e.png"))
    ratio = widget.devicePixelRatioF()
    assert (image.width(), image.height()) == (320 * ratio, 200 * ratio)
    assert image.pixelColor(100, 100).name() == "#123456"
    save_image(tmp_path / "f.png", QPixmap(), messages.message)
    assert messages.received == [
        (f"The image was saved to {tmp_path}/e.png.", "info"),
        ("Could not save f.png: there is nothing to save as an image.", "warning"),
    ]
    assert not (tmp_path / "f.png").exists()
