"""Device readings on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from engine.contract.device_history import HistoryWriter, read_history


@pytest.mark.parametrize(
    ("times", "saved"),
    [(range(0, 91, 10), (0, 30, 60, 90)), ((500, 100, 129, 130), (500, 100, 130))],
    ids=["steady", "clock set back"],
)
def test_history_returns_spaced_readings(tmp_path: Path, times: Iterable[int], saved: tuple[int, ...]) -> None:
    path = tmp_path / "new" / "history"
    writer = HistoryWriter(path, spacing_s=30)
    for second in times:
        writer.add(1000.54 + second, {"GPU-1": {"power_w": 100.123456 + second, "fan_percent": None}})
    assert list(read_history(path)) == [
        (1000.5 + second, {"GPU-1": {"power_w": round(100.123456 + second, 2)}}) for second in saved
    ]


def test_history_names_quantities_that_appear_later(tmp_path: Path) -> None:
    path = tmp_path / "history"
    writer = HistoryWriter(path, spacing_s=1)
    writer.add(1.0, {"cpu": {"a": 0.0}})
    writer.add(2.0, {"cpu": {"b": 2.0, "a": None}})
    HistoryWriter(path, spacing_s=1).add(3.0, {"cpu": {"b": 3.0}})
    assert [values["cpu"] for _, values in read_history(path)] == [{"a": 0.0}, {"b": 2.0}, {"b": 3.0}]


def test_history_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "history"
    writer = HistoryWriter(path, spacing_s=1, max_file_bytes=1000)
    for second in range(500):
        writer.add(float(second), {"cpu": {"load": float(second)}})
    assert 1000 < sum(file.stat().st_size for file in tmp_path.iterdir()) < 2200
    readings = list(read_history(path))
    first = readings[0][0]
    assert first > 0
    assert readings == [(float(second), {"cpu": {"load": float(second)}}) for second in range(int(first), 500)]


@pytest.mark.parametrize(
    ("damage", "lines"), [(b"\xff\x00{[", 2), (b'["no time"]\n', 3), (b'{"quantities": 3}\n', 3), (b"\n", 3)]
)
def test_history_skips_damaged_lines(
    tmp_path: Path, damage: bytes, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "history"
    HistoryWriter(path).add(1.0, {"cpu": {"load": 1.0}})
    path.write_bytes(damage + b"\n" + path.read_bytes() + damage)
    assert [time for time, _ in read_history(path)] == [1.0]
    assert [record.args for record in caplog.records] == [(lines, path)]
    caplog.clear()


def test_history_stops_after_a_failed_write(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    writer = HistoryWriter(tmp_path / "file" / "history", spacing_s=1)
    for second in range(3):
        writer.add(float(second), {"cpu": {"load": 1.0}})
    assert len(caplog.records) == 1
    caplog.clear()
    assert list(read_history(tmp_path / "file" / "history")) == []
