"""Stored settings of the window."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from PySide6.QtCore import QByteArray

from gui.sources.settings import Settings
from tests.support.planting import FileCreator


def test_settings_keep_values_of_other_windows(tmp_path: Path) -> None:
    one, other = Settings(tmp_path / "home"), Settings(tmp_path / "home")
    state = QByteArray(b"\0\xff\x01 state")
    one.set("geometry", state)
    other.set("compact", True)
    one.set("names", "a é “b”")
    again = Settings(tmp_path / "home")
    assert again.bytes("geometry") == state
    assert again.flag("compact", False) is True
    assert again.text("names") == "a é “b”"
    assert again.bytes("unknown") is None
    assert again.flag("names", True) is True
    for key in ("names", "unknown"):
        one.forget(key)
    assert (again.text("names"), again.flag("compact", False)) == ("", True)
    Settings(tmp_path / "home" / "window.json").set("compact", False)  # its folder can't be created
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()] == [0o600]


@pytest.mark.parametrize("content", [b"", b"\0" * 50, b'{"geometry": 5}', b'{"geometry": "\xff"}', b"[]"])
def test_settings_unreadable_file_counts_as_empty(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "window.json").write_bytes(content)
    settings = Settings(tmp_path)
    assert settings.bytes("geometry") is None
    settings.set("compact", True)
    assert settings.flag("compact", False) is True


def test_settings_run_no_pickled_object(tmp_path: Path) -> None:
    """Load a settings file that contains a pickled object, in the format of PySide's QSettings."""
    planted = tmp_path / "planted"
    escaped = "".join(f"\\x{byte:x}" for byte in pickle.dumps(FileCreator(planted)))
    name = "PySide::PyObjectWrapper"
    text = rf"[General]{chr(10)}geometry=@Variant(\0\0\0\x7f\0\0\0\x18{name}\0\0\0\0\x{len(pickle.dumps(FileCreator(planted))):x}{escaped})"
    for file in ("window.ini", "window.json"):
        (tmp_path / file).write_text(text + "\n")
    settings = Settings(tmp_path)
    assert settings.bytes("geometry") is None
    assert settings.text("geometry") == ""
    settings.set("geometry", QByteArray(b"x"))
    assert not planted.exists()
