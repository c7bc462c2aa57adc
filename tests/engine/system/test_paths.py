"""Folders of Footplate, atomic writes, and files that only the user can read."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from engine.runs.consent import record_consent
from engine.runs.notes import change_notes
from engine.runs.notices import NoticeSettings, save_notices
from engine.system import paths
from engine.system.cache_limit import images_folder
from engine.system.paths import explain_full_disk, make_trusted_folder, write_atomically
from gui.sources.settings import Settings
from tests.faults.damage import limit_files, mount, unmount
from tests.support.nobody import NOBODY

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the limit of a process's files is Linux' own here")
LARGE = "x" * 10_000
WRITERS: dict[str, Callable[[Path], object]] = {
    "consent": lambda folder: record_consent(f"/{LARGE}", "0" * 64),
    "notes": lambda folder: change_notes(folder, text=LARGE),
    "notices": lambda _folder: save_notices(NoticeSettings(command="x" * 4000)),
    "settings": lambda folder: Settings(folder).set("key", LARGE),
}


@LINUX
@pytest.mark.parametrize(
    ("variables", "chosen", "expected"),
    [
        ({}, {}, ("u/.local/share/footplate", "u/.local/share/footplate/runs", "u/.cache/footplate")),
        ({"XDG_DATA_HOME": "", "XDG_CACHE_HOME": ""}, {"runs": "r"}, ("u/.local/share/footplate", "r", "u/.cache/footplate")),
        ({"XDG_DATA_HOME": "x", "XDG_CACHE_HOME": "y"}, {}, ("x/footplate", "x/footplate/runs", "y/footplate")),
        ({"FOOTPLATE_HOME": "h", "XDG_DATA_HOME": "x", "XDG_CACHE_HOME": "y"}, {}, ("h", "h/runs", "h/cache")),
        ({"FOOTPLATE_HOME": "~/h"}, {"cache": "~/k", "runs": "~/r"}, ("u/h", "u/r", "u/k")),
        ({"FOOTPLATE_HOME": "h", "FOOTPLATE_CACHE": "~/c"}, {"runs": "r", "cache": "k"}, ("h", "r", "u/c")),
    ],
)  # fmt: skip
def test_folders_follow_variables_and_choices(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: dict[str, str],
    chosen: dict[str, str],
    expected: tuple[str, str, str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("FOOTPLATE_HOME", "FOOTPLATE_CACHE", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"HOME": str(tmp_path / "u")} | variables).items():
        monkeypatch.setenv(name, str(tmp_path / value) if name.startswith("XDG") and value else value)
    for purpose, folder in chosen.items():
        paths.choose_folder(purpose, folder)
    home, runs, cache = (tmp_path / folder for folder in expected)
    assert (paths.home(), paths.runs_folder(), paths.cache_folder()) == (home, runs, cache)
    assert images_folder() == cache / "pictures"
    paths.choose_folder("runs", "")
    assert (paths.runs_folder(), paths.cache_folder()) == (home / "runs", cache)


@pytest.mark.parametrize(
    ("text", "mode", "found"),
    [
        ('runs = "/r"\ncache = "/c"\nother = "/o"', 0o644, {"runs": "/r", "cache": "/c"}),
        ('runs = 3\ncache = ""', 0o644, {}),
        ('runs = "/r', 0o644, {}),
        ('runs = "/r"', 0o664, {"runs": "/r"}),
        ('runs = "/r"', 0o666, {}),
    ],
)
def test_chosen_folders_are_valid_and_the_users(separate_home: Path, text: str, mode: int, found: object) -> None:
    separate_home.mkdir()
    file = separate_home / paths.FOLDERS
    file.write_text(text)
    file.chmod(mode)
    assert paths.read_chosen_folders() == found


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX' own")
def test_folders_become_private_with_any_umask(separate_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = os.umask(0)
    try:
        paths.make_private_folder(paths.make_home() / "a/b")
        (separate_home / "c").mkdir(mode=0o755)
        paths.make_private_folder(separate_home / "c")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(separate_home))
        (separate_home / "footplate").mkdir(mode=0o750)
        assert paths.runtime_folder() == separate_home / "footplate"
    finally:
        os.umask(before)
    folders = [separate_home, *(path for path in separate_home.rglob("*") if path.is_dir())]
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in folders} == dict.fromkeys(
        ("home", "a", "b", "c", "footplate"), 0o700
    )
    for mode in (0o775, 0o751):
        separate_home.chmod(mode)
        assert stat.S_IMODE(paths.make_home().stat().st_mode) == mode & ~0o022


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX' own")
def test_runtime_folder_is_no_link(separate_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(separate_home))
    (separate_home / "shared").mkdir(parents=True)
    (separate_home / "shared").chmod(0o755)
    (separate_home / "footplate").symlink_to(separate_home / "shared")
    assert paths.runtime_folder() != separate_home / "footplate"
    assert stat.S_IMODE((separate_home / "shared").stat().st_mode) == 0o755


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no FIFOs")
def test_open_private_refuses_links_and_pipes(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            os.close(paths.open_private(str(tmp_path / name), os.O_WRONLY | os.O_CREAT))
    assert not (tmp_path / "target").exists()


@pytest.fixture
def file_size_limit() -> Iterator[None]:
    """Limit the files that this process writes to 1,000 bytes."""
    limit_files(psutil.Process(), 1_000)
    yield
    limit_files(psutil.Process(), None)


@pytest.mark.parametrize(
    ("name", "mode", "is_refused"),
    [
        ("parent", 0o700, False),
        ("parent", 0o770, False),
        ("parent", 0o1777, False),
        ("parent", 0o777, True),
        ("target", 0o770, True),
        ("target", 0o1777, True),
        ("links", 0o1777, False),
        ("links", 0o777, True),
    ],
)
def test_trusted_folder_refuses_what_others_can_change(tmp_path: Path, name: str, mode: int, is_refused: bool) -> None:
    target, links = tmp_path / "parent/target", tmp_path / "links"
    for folder in (target.parent, target, links):
        folder.mkdir(mode=0o700)
    (links / "link").symlink_to(target)
    changed = {"parent": target.parent, "target": target, "links": links}[name]
    changed.chmod(mode)
    if is_refused:
        with pytest.raises(PermissionError, match=f"{changed} can be changed by other users .its mode is {mode:o}"):
            make_trusted_folder(links / "link")
    else:
        assert make_trusted_folder(links / "link") == target


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give folders away")
def test_trusted_folder_belongs_to_the_user_or_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    os.chown(tmp_path / "a", NOBODY, -1)
    with pytest.raises(PermissionError, match=f"{tmp_path}/a belongs to another user"):
        make_trusted_folder(tmp_path / "a/b")
    monkeypatch.setattr(os, "getuid", lambda: NOBODY)
    assert make_trusted_folder(tmp_path / "a/b") == tmp_path / "a/b"


@pytest.mark.parametrize("umask", [0o000, 0o077])
@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX' own")
def test_write_atomically_is_private_with_any_umask(tmp_path: Path, umask: int) -> None:
    file = tmp_path / "file"
    before = os.umask(umask)
    try:
        write_atomically(file, b"first")
        write_atomically(file, b"second", sync=True)
    finally:
        os.umask(before)
    assert file.read_bytes() == b"second"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@LINUX
@pytest.mark.usefixtures("file_size_limit")
def test_write_atomically_keeps_content_on_full_disk(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_atomically(file, b"first")
    for size in (2_000, 10_000):  # the former is in a buffer until the file is closed
        with pytest.raises(OSError, match="File too large"):
            write_atomically(file, bytes(size))
        assert file.read_bytes() == b"first"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@LINUX
@pytest.mark.usefixtures("file_size_limit")
@pytest.mark.parametrize("what", list(WRITERS))
def test_writers_leave_no_partial_files_on_full_disk(separate_home: Path, tmp_path: Path, what: str) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    with suppress(OSError):  # the settings of the window ignore this error
        WRITERS[what](folder)
    assert [path for root in (folder, separate_home) for path in root.rglob("*") if path.is_file()] == []


def fill(disk: Path) -> None:
    """Write files until the disk is full. Raises OSError with the name of the last file."""
    for number in range(9):
        file = disk / str(number)
        try:
            file.write_bytes(b"x" * (16 << 10))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(file)) from None


@pytest.mark.parametrize(("options", "reason"), [("nr_inodes=3", "inodes"), ("size=64k", "full")])
def test_full_disk_cause_distinguishes_space_and_inodes(tmp_path: Path, options: str, reason: str) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount("-t", "tmpfs", "-o", options, "footplate-test", str(disk))
    try:
        with pytest.raises(OSError, match="No space left") as raised:
            fill(disk)
        cause = explain_full_disk(raised.value)
    finally:
        unmount(disk)
    assert reason in cause
    assert str(disk) in cause


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_cause_includes_quotas(tmp_path: Path, number: int) -> None:
    cause = explain_full_disk(OSError(number, "full", str(tmp_path / "a.pt")))
    assert cause.startswith(f"The disk of {tmp_path / 'a.pt'} is full, or your quota on it is used up.")
    assert explain_full_disk(OSError(number, "full", os.fsencode(tmp_path / "a.pt"))) == cause
    assert explain_full_disk(OSError(number, "full")).startswith("The disk is full")


def test_full_disk_cause_is_empty_for_other_errors() -> None:
    assert explain_full_disk(PermissionError(13, "Permission denied", "file")) == explain_full_disk(ValueError()) == ""
