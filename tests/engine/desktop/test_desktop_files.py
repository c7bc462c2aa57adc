"""Files that `footplate desktop` installs in the user's folders and removes again."""

from __future__ import annotations

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.desktop import ICON_SIZES, create_desktop_files, data_folder, install, quote_exec, remove
from engine.cli.main import main
from tests.support.scripts import write_script

ODD = '/opt/ö $(id) `id` 100%\\"x"/footplate'
"""Path with all characters that are special in the Exec key of a desktop entry."""


def read_tree(folder: Path) -> dict[str, str]:
    """Return the contents of all files below `folder` by relative path, except files that desktop tools generate."""
    generated = ("mimeinfo.cache", "mime/")
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    installed = {
        name: path
        for name, path in found.items()
        if name.startswith("mime/packages") or not any(g in name for g in generated)
    }
    return {name: path.read_bytes().decode("latin1") for name, path in installed.items()}


def entry(folder: Path) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(folder / "applications/footplate.desktop", encoding="utf-8")
    return parser["Desktop Entry"]


def test_desktop_command_installs_and_removes_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    other = data / "icons/hicolor/48x48/apps/other.png"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"somebody else's")
    script = tmp_path / "bin/footplate"
    script.parent.mkdir()
    script.touch(0o755)
    monkeypatch.setenv("XDG_DATA_HOME", str(data))
    monkeypatch.setattr(sys, "argv", [str(script), "desktop", "install"])
    before = read_tree(data)
    assert main(["desktop", "install"]) == 0
    assert entry(data)["Exec"] == f'"{script}" %f'
    assert entry(data)["TryExec"] == str(script)
    assert len(read_tree(data)) == len(before) + len(ICON_SIZES) + 4
    count = len(ICON_SIZES) + 4
    announced = f"Footplate is now among the applications: {count} files in {data}.\n"
    assert capsys.readouterr().out == f"{announced}Remove them with: footplate desktop remove\n"
    monkeypatch.setattr(sys, "argv", [str(script.rename(script.with_name("footplate.py"))), "desktop", "install"])
    os.utime(data / "icons/hicolor", (0, 0))
    assert main(["desktop", "install"]) == 0  # install again, as after an upgrade
    assert entry(data)["Exec"] == f'"{sys.executable}" "{script}.py" %f'
    assert entry(data)["TryExec"] == sys.executable
    assert (data / "icons/hicolor").stat().st_mtime > 0, "desktops reload a changed folder"
    assert main(["desktop", "remove"]) == 0
    assert f"\n{count} files removed from {data}." in capsys.readouterr().out
    assert read_tree(data) == before
    assert sorted(path.name for path in (data / "icons/hicolor").iterdir()) == ["48x48"]
    assert main(["desktop", "remove"]) == 0
    assert "0 files removed" in capsys.readouterr().out


def test_install_leaves_read_only_data_folder_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    (tmp_path / "applications").write_text("no folder")
    earlier = tmp_path / "mime/packages/footplate.xml"  # of an earlier installation
    earlier.parent.mkdir(parents=True)
    earlier.touch()
    assert main(["desktop", "install"]) == 2
    assert "set XDG_DATA_HOME" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} - {"home"} == {"applications", "mime"}
    assert earlier.exists()


def test_desktop_tools_update_existing_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    for name in ("update-mime-database", "update-desktop-database"):
        write_script(tmp_path / "bin" / name, f'echo {name} "$1" $(/bin/ls "$1" | /usr/bin/wc -l) >> {tmp_path}/log')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    data = tmp_path / "data"
    data.mkdir()
    install(["/opt/footplate"], data)
    assert (remove(data), remove(data)) != ([], [])
    counts = [("mime", 1), ("applications", 1), ("mime", 1), ("applications", 0)]
    tools = {"mime": "update-mime-database", "applications": "update-desktop-database"}
    lines = [f"{tools[name]} {data / name} {count}" for name, count in counts]
    assert (tmp_path / "log").read_text().splitlines() == lines
    assert list(data.iterdir()) == []


def test_exec_line_quotes_special_characters() -> None:
    line = quote_exec([ODD, "it's"])
    once = line.replace("\\\\", "\\").replace("%%", "%")  # undo the escapes of strings and of field codes
    # A shell has the same rules within double quotes.
    result = subprocess.run(["sh", "-c", f"printf '%s|' {once}"], capture_output=True, text=True, check=True)
    assert result.stdout == f"{ODD}|it's|"


def test_data_folder_ignores_relative_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "somewhere")
    assert data_folder() == Path.home() / ".local/share"


def test_desktop_tools_accept_files(tmp_path: Path) -> None:
    install([sys.executable, "/opt/footplate.py"], tmp_path)
    (metainfo,) = tmp_path.glob("metainfo/*")
    checks = [
        ["desktop-file-validate", tmp_path / "applications/footplate.desktop"],
        ["appstreamcli", "validate", "--no-net", metainfo],
    ]
    available = [check for check in checks if shutil.which(str(check[0]))]
    if not available:
        pytest.skip("neither desktop-file-validate nor appstreamcli is installed")
    for check in available:
        done = subprocess.run(check, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "error" not in done.stdout
    assert len(remove(tmp_path)) == len(create_desktop_files([""], tmp_path))
