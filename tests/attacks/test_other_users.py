"""Folders and links that another user has created in advance.

Footplate must not save runs in them, nor follow them out of a run folder or the trash.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.runs.holding import measure_folder
from engine.runs.notes import change_notes
from gui.sources.trash import put_back, trash_run
from tests.faults.damage import mount, unmount
from tests.gui.sources.written_runs import write_run
from tests.support.nobody import NOBODY, run_as_nobody

pytestmark = pytest.mark.attacks

USER = NOBODY - 1
THINGS = ("runs", "consent", "logs", "cache")
IMPORTED = "from engine.contract.job import Job; from engine.runs import consent; from engine.runs.folder import create_run; from engine.system import paths"
USE = """
def why_not(act, *words):
    try:
        act(*words)
    except PermissionError as error:
        return str(error)

print(json.dumps({
    "runs": why_not(create_run, Job()),
    "consent": why_not(consent.record_consent, "net.py", "0" * 64),
    "logs": why_not(paths.make_private_folder, paths.home() / "logs"),
    "cache": why_not(paths.make_trusted_folder, paths.cache_folder() / "compiled"),
}))
"""
PLANT = {
    "folders": "os.mkdir(path, 0o777)",
    "links": "os.mkdir(path + '.theirs', 0o777); os.symlink(path + '.theirs', path)",
}


@pytest.mark.parametrize("what", PLANT)
def test_files_planted_in_home_are_not_used(shared_folder: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Start with a Footplate home that all users were able to write to before."""
    home = shared_folder / "home"
    run_as_nobody("os.umask(0); os.mkdir(sys.argv[1], 0o777); print(0)", str(home), uid=USER)
    for name in THINGS:
        run_as_nobody(f"os.umask(0); path = sys.argv[1]; {PLANT[what]}; print(0)", str(home / name))
    monkeypatch.setenv("FOOTPLATE_HOME", str(home))
    monkeypatch.delenv("FOOTPLATE_CACHE")
    result = run_as_nobody(USE, uid=USER, before=IMPORTED)
    refused = {name: why is not None and why.startswith(f"{home / name}") for name, why in result.items()}
    assert refused == dict.fromkeys(THINGS, True), result
    assert [path for path in home.rglob("*") if path.is_file()] == []


# Trash on a shared disk


@pytest.fixture
def shared_disk(shared_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Mount a disk that all users can write to and that contains the Footplate home.

    The user's trash is on another disk.
    """
    mount("-t", "tmpfs", "-o", "size=4m,mode=1777", "footplate-test", str(shared_folder))
    monkeypatch.setenv("FOOTPLATE_HOME", str(shared_folder / "home"))
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield shared_folder
    unmount(shared_folder)


OPEN = "os.umask(0); [os.makedirs(f'{path}/{name}', 0o777) for name in ('files', 'info')]"
TRASHES = {
    "the user's": f"path = f'.Trash-{{user}}'; {OPEN}",
    "a link": f"path = 'theirs'; {OPEN}; os.symlink(os.path.abspath(path), f'.Trash-{{user}}')",
    "everybody's": f"path = f'.Trash/{{user}}'; {OPEN}; os.chmod('.Trash', 0o1777)",
}


@pytest.mark.parametrize("which", TRASHES)
def test_prepared_trash_of_another_user_is_not_used(shared_disk: Path, which: str) -> None:
    code = f"os.chdir(sys.argv[1]); user = int(sys.argv[2]); {TRASHES[which]}; print(0)"
    run_as_nobody(code, str(shared_disk), str(os.getuid()))
    theirs = {path.resolve() for path in shared_disk.rglob("*") if path.is_dir()}
    assert {path.stat().st_uid for path in theirs} == {NOBODY}
    run = write_run(8)
    thing = trash_run(run)
    assert {folder.stat().st_uid for folder in (thing.location, *thing.location.parents[:2])} == {os.getuid()}
    assert {path.resolve() for folder in theirs for path in folder.iterdir()} <= theirs
    put_back(thing)
    assert run.job_file.is_file()


DELETE = """
try:
    print(json.dumps(str(trash_run(RunFolder(Path(sys.argv[1]))).location)))
except CannotTrash as error:
    print(json.dumps(f"refused: {error}"))
"""
WITH = "from pathlib import Path; from engine.runs.folder import RunFolder; from gui.sources.trash import CannotTrash, trash_run"


def test_prepared_footplate_trash_is_not_used(shared_disk: Path) -> None:
    """Delete a run while another user owns Footplate's trash folder, on a desktop without trash."""
    (shared_disk / f".Trash-{USER}").write_text("no folder")
    home = shared_disk / "home"
    home.mkdir()
    home.chmod(0o777)
    run_as_nobody("os.umask(0); os.mkdir(sys.argv[1], 0o777); print(0)", str(home / "trash"))
    run = write_run(8)
    for path in (home, run.path.parent, run.path, *run.path.rglob("*")):
        os.chown(path, USER, USER)
    assert run_as_nobody(DELETE, str(run.path), uid=USER, before=WITH).startswith("refused: ")
    assert run.job_file.is_file()
    assert list((home / "trash").iterdir()) == []
    (home / "trash").rmdir()
    place = Path(run_as_nobody(DELETE, str(run.path), uid=USER, before=WITH))
    assert place.parent == home / "trash"
    assert (place / "job.toml").is_file()


def test_deleting_and_restoring_run_follows_no_links(shared_disk: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "last.pt").write_bytes(b"precious")
    before = outside.stat().st_mode
    run = write_run(8)
    run.checkpoints.rmdir()
    run.checkpoints.symlink_to(outside)
    (run.path / "notes.json").symlink_to(outside / "last.pt")
    assert measure_folder(run.path).checkpoint_bytes == 0
    thing = trash_run(run)
    assert not run.path.exists()
    put_back(thing)
    change_notes(run.path, name="renamed")
    assert (outside / "last.pt").read_bytes() == b"precious"
    assert [path.name for path in outside.iterdir()] == ["last.pt"]
    assert outside.stat().st_mode == before
