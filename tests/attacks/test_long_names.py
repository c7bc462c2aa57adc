"""Names of any length. Displayed texts must stay short, and different names must stay distinguishable."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec import structs

from engine.contract.dataset import DatasetReport
from engine.contract.devices import Snapshot
from engine.data.inspection.inspector import inspect
from engine.gpus import host
from engine.gpus.host import HostProcesses
from engine.system.plain_text import MAX_SHOWN_CHARS, shorten, shorten_texts
from tests.gui.sources.devices.snapshots import snapshot
from tests.support.images import write_image

pytestmark = [
    pytest.mark.attacks,
    pytest.mark.skipif(sys.platform != "linux", reason="names and paths are as long as Linux has them"),
]


def inspect_folder(folder: Path) -> DatasetReport:
    return inspect(str(folder), val_fraction=0.25, seed=0, progress=lambda done, total: None, threads=1)


def list_texts(content: object) -> list[str]:
    """Return all strings in a message that was converted to builtin types."""
    match content:
        case str():
            return [content]
        case dict():
            return [text for pair in content.items() for each in pair for text in list_texts(each)]
        case list():
            return [text for each in content for text in list_texts(each)]
    return []


def test_shortened_keeps_start_and_end() -> None:
    assert shorten("a" * 600 + "b" * 600) == "a" * 500 + "…" + "b" * 499
    assert shorten("a" * 1000) == "a" * 1000
    assert shorten("abcdef", 5) == "ab…ef"
    assert shorten("a\n" * 10) == "a\n" * 10
    assert shorten("a\r\n" * 11) == "a↵" * 10 + "a"


def test_long_class_names_stay_distinct(tmp_path: Path) -> None:
    names = ("x" * 254 + "a", "x" * 254 + "b")
    for name in names:
        for number in range(4):
            write_image(tmp_path / name / f"{number}.png")
    report = inspect_folder(tmp_path)
    assert report.classes == names
    assert [set(split.counts) for split in report.splits] == [set(names)] * 2


def test_long_path_is_shortened(tmp_path: Path) -> None:
    for name in ("cats", "dogs"):
        for number in range(4):
            write_image(tmp_path / name / f"{number}.png")
    here = os.getcwd()
    try:
        os.chdir(tmp_path / "cats")
        for _ in range(12):
            os.mkdir("y" * 250)
            os.chdir("y" * 250)
        Path("torn.png").write_bytes(b"torn")
    finally:
        os.chdir(here)
    report = inspect_folder(tmp_path)
    assert report.unreadable_count == 1
    assert report.unreadable[0].path == shorten("/".join(["cats", *["y" * 250] * 12, "torn.png"]))
    assert max(map(len, list_texts(msgspec.to_builtins(structs.replace(report, examples=()))))) <= MAX_SHOWN_CHARS


@pytest.mark.parametrize("field", ["host", "gpus"])
def test_snapshot_rejects_name_with_line_breaks(field: str) -> None:
    content = msgspec.to_builtins(snapshot())
    content |= {"host": "a\n"} if field == "host" else {"gpus": [{"uuid": "GPU-1", "name": "a\nb", "nvml_index": 0}]}
    with pytest.raises(msgspec.ValidationError, match="matching regex"):
        msgspec.convert(content, Snapshot)


def test_process_name_has_no_line_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has_foreign_pids", lambda: False)
    name = "import ctypes; ctypes.CDLL(None).prctl(15, b'two\\nlines', 0, 0, 0); print(flush=True); input()"
    command = [sys.executable, "-c", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        content = HostProcesses().read(process.pid)
        process.communicate(b"\n")
    assert content.name == "two lines"


@pytest.mark.parametrize("field", ["host", "nvml", "gpus"])
def test_snapshot_rejects_long_name(field: str) -> None:
    content = msgspec.to_builtins(snapshot())
    long = "x" * (MAX_SHOWN_CHARS + 1)
    content |= {"host": {"host": long}, "nvml": {"nvml": {"status": "ok", "message": long}}}.get(
        field, {"gpus": [{"uuid": "GPU-1", "name": long, "nvml_index": 0}]}
    )
    with pytest.raises(msgspec.ValidationError, match=f"length <= {MAX_SHOWN_CHARS}"):
        msgspec.convert(content, Snapshot)


def test_process_name_fits_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "has_foreign_pids", lambda: False)
    # A byte that isn't valid UTF-8 is displayed with six characters.
    command = [b"\xff" * 290, "-c", "echo; read line"]
    with subprocess.Popen(command, executable="/bin/sh", stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the kernel tells of a command that begins without its arguments
        content = HostProcesses().read(process.pid)
        process.communicate()
    assert content.command.startswith("\\udcff")
    assert len(content.command) == MAX_SHOWN_CHARS


def test_shorten_texts_is_recursive() -> None:
    long = "x" * 2000
    content = shorten_texts(DatasetReport(folder="", format="", classes=("a", long)))
    assert content.classes == ("a", shorten(long))
    assert shorten_texts({long: (long, 7)}) == {shorten(long): (shorten(long), 7)}
