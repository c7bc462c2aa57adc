"""Moving of runs to the desktop's trash and back, or to Footplate's trash if the desktop has none."""

from __future__ import annotations

import configparser
import os
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote

import pytest

from engine.runs.folder import SupervisorFile, create_run, process_start
from engine.system import paths
from gui.sources.trash import CannotTrash, put_back, trash_run
from tests.gui.sources.written_runs import job, supervise_here, write_run

linux = pytest.mark.skipif(sys.platform != "linux", reason="This is the trash that freedesktop.org specifies")


pytestmark = pytest.mark.usefixtures("trash")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@linux
def test_trash_run_follows_desktop_specification(trash: Path) -> None:
    run = write_run(8)
    before = contents(run.path)
    started = datetime.now().isoformat(timespec="seconds")  # time.strftime reads a clock that lags behind
    thing = trash_run(run)
    assert thing.desktop
    assert not run.path.exists()
    assert contents(trash / "files" / run.run_id) == before
    info = configparser.RawConfigParser()
    info.optionxform = str  # type: ignore[assignment,method-assign]
    info.read(trash / "info" / f"{run.run_id}.trashinfo")
    assert unquote(info["Trash Info"]["Path"]) == str(run.path)
    assert started <= info["Trash Info"]["DeletionDate"] <= datetime.now().isoformat(timespec="seconds")
    assert trash.stat().st_mode & 0o077 == 0 or (trash / "files").stat().st_mode & 0o077 == 0


def test_put_back_restores_run(trash: Path) -> None:
    run = write_run(8)
    before, state = contents(run.path), run.state()
    thing = trash_run(run)
    put_back(thing)
    assert contents(run.path) == before
    assert run.state() == state
    assert [path for path in trash.rglob("*") if path.is_file()] == []
    assert not thing.location.exists()


@linux
def test_trash_runs_of_same_name(trash: Path) -> None:
    run = write_run(8)
    first = trash_run(run)
    run.path.mkdir()
    (run.path / "job.toml").write_text("")
    (run.path / "events.jsonl").write_bytes((first.location / "events.jsonl").read_bytes())
    second = trash_run(run)
    assert first.location != second.location
    assert (first.location / "checkpoints").is_dir()
    infos = {path.name for path in (trash / "info").iterdir()}
    assert infos == {f"{thing.location.name}.trashinfo" for thing in (first, second)}
    put_back(second)
    assert (first.location / "job.toml").is_file()
    assert (trash / "info" / f"{first.location.name}.trashinfo").is_file()


def test_trash_running_run_is_refused() -> None:
    run = write_run(8, None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = process_start(process.pid)
        run.write_supervisor(SupervisorFile(pid=process.pid, start_time=started, endpoint="unix:/nowhere"))
        with pytest.raises(CannotTrash, match="stop it first"):
            trash_run(run)
        assert run.events_file.is_file()
        process.communicate(b"\n")
    trash_run(run)
    assert not run.path.exists()


@pytest.mark.parametrize("starting", [True, False])
def test_trash_run_with_live_supervisor_is_refused(starting: bool) -> None:
    run = create_run(job()) if starting else write_run(8)
    if not starting:
        supervise_here(run)
    with pytest.raises(CannotTrash, match="still running"):
        trash_run(run)
    assert run.job_file.is_file()


def test_trash_missing_run_is_refused() -> None:
    run = write_run(8)
    thing = trash_run(run)
    with pytest.raises(CannotTrash, match="no longer exists"):
        trash_run(run)
    put_back(thing)
    with pytest.raises(CannotTrash, match="no longer in the trash"):
        put_back(thing)


def test_put_back_keeps_existing_folder() -> None:
    run = write_run(8)
    thing = trash_run(run)
    run.path.mkdir()
    (run.path / "mine").write_text("new")
    with pytest.raises(CannotTrash, match="exists again"):
        put_back(thing)
    assert (run.path / "mine").read_text() == "new"
    assert (thing.location / "job.toml").is_file()


@linux
def test_trash_without_desktop_uses_footplate_folder(trash: Path) -> None:
    trash.write_text("no folder")
    run = write_run(8)
    before = contents(run.path)
    thing = trash_run(run)
    assert not thing.desktop
    assert thing.location.parent == paths.home() / "trash"
    put_back(thing)
    assert contents(run.path) == before
    again = trash_run(run)
    assert again.location != thing.location


@linux
def test_trash_unwritable_run_is_refused(trash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trash.write_text("no folder")
    run = write_run(8)
    (paths.home() / "trash").write_text("no folder either")
    with pytest.raises(CannotTrash, match="could not be moved: "):
        trash_run(run)
    assert run.job_file.is_file()


@linux
@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="There is no second file system to try it on")
def test_trash_stays_on_same_disk(trash: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil
    import tempfile

    home = Path(tempfile.mkdtemp(dir="/dev/shm"))
    top = Path("/dev/shm") / f".Trash-{os.getuid()}"
    existed = top.exists()
    monkeypatch.setenv("FOOTPLATE_HOME", str(home))
    try:
        run = write_run(8)
        thing = trash_run(run)
        assert thing.desktop
        assert thing.location == top / "files" / run.run_id
        # Relative to the root of the disk, so that it is valid wherever the disk is mounted.
        info = top / "info" / f"{run.run_id}.trashinfo"
        assert f"Path={home.name}/runs/{run.run_id}\n" in info.read_text()
        put_back(thing)
        assert run.job_file.is_file()
        assert not info.exists()
        assert not (trash / "info").exists() or not any((trash / "info").iterdir())
    finally:
        shutil.rmtree(home)
        if not existed:
            shutil.rmtree(top, ignore_errors=True)
