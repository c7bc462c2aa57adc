"""Workers without a supervisor: how they are found and ended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from engine.cli.doctor import orphans
from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run, process_alive, process_start
from engine.runs.orphans import CannotEnd, Orphan, end_orphan, find_orphans
from tests.engine.supervisor.conftest import start as start  # noqa: PLC0414  (a fixture)
from tests.engine.supervisor.supervised import Start, has_exited, wait_until
from tests.support.left_alone import leave, put_away

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the workers are new interpreters")


@pytest.fixture
def run() -> RunFolder:
    return create_run(Job.from_fields(name="night"))


@pytest.fixture
def left(run: RunFolder) -> Iterator[Callable[..., Orphan]]:
    """Yield a function that creates orphaned workers of the run. They are ended after the test."""
    started: list[Orphan] = []

    def make(rank: int = 0, *arguments: str) -> Orphan:
        started.append(leave(run, rank, *arguments))
        return started[-1]

    yield make
    for orphan in started:
        put_away(orphan)


def found() -> list[Orphan]:
    return find_orphans(settle_s=0.0)


def alive(orphan: Orphan) -> bool:
    return process_alive(orphan.pid, orphan.start_time)


def test_find_orphans_returns_run_and_rank(left: Callable[..., Orphan]) -> None:
    assert find_orphans() == []
    orphans = [left(0), left(1)]
    assert find_orphans() == sorted(orphans, key=lambda orphan: orphan.pid)


def test_end_orphan_terminates(left: Callable[..., Orphan]) -> None:
    orphan = left(0)
    end_orphan(orphan)
    assert not alive(orphan)
    assert found() == []
    end_orphan(orphan)  # may be called twice


def test_end_orphan_kills_after_timeout(left: Callable[..., Orphan]) -> None:
    orphan = left(0, "deaf")
    end_orphan(orphan, patience_s=0.3)
    assert not alive(orphan)


def test_children_end_with_orphan(left: Callable[..., Orphan]) -> None:
    orphan = left(0, "child")
    wait_until(lambda: bool(psutil.Process(orphan.pid).children()), "its child")
    (child,) = psutil.Process(orphan.pid).children()
    assert child.name() == "footplate-w0"
    assert found() == [orphan]
    end_orphan(orphan)
    wait_until(lambda: has_exited(child.pid), "its child to go")


def test_end_orphan_spares_reused_pid(left: Callable[..., Orphan]) -> None:
    orphan = left(0)
    end_orphan(msgspec.structs.replace(orphan, start_time=orphan.start_time - 60))
    assert alive(orphan)


def test_supervised_workers_are_no_orphans(start: Start) -> None:
    running = start("forever", 2)
    with running.connect():
        wait_until(lambda: len(psutil.Process(running.process.pid).children()) >= 2, "the workers")
        wait_until(lambda: all(running.run.worker_log(rank).exists() for rank in (0, 1)), "their logs")
        workers = [child for child in psutil.Process(running.process.pid).children() if "-w" in child.name()]
        assert found() == []
        running.run.supervisor_file.unlink()  # even without the supervisor file
        assert found() == []
        assert all(worker.is_running() for worker in workers)
    running.process.terminate()
    running.wait()


def test_workers_of_previous_execution_are_orphans(run: RunFolder, left: Callable[..., Orphan]) -> None:
    orphan = left(0)
    supervisor = run.supervisor()
    assert supervisor is not None
    here = psutil.Process()
    run.write_supervisor(
        msgspec.structs.replace(supervisor, pid=here.pid, start_time=process_start(here.pid), execution=2)
    )
    assert found() == [orphan]


def test_orphan_of_moved_or_deleted_run_is_found(run: RunFolder, left: Callable[..., Orphan], tmp_path: Path) -> None:
    orphan = left(0)
    os.rename(run.path, tmp_path / run.run_id)
    assert found() == [msgspec.structs.replace(orphan, folder=str(tmp_path / run.run_id))]
    shutil.rmtree(tmp_path / run.run_id)
    pid = orphan.pid
    assert [(orphan.pid, orphan.run_id) for orphan in found()] == [(pid, run.run_id)]


def test_workers_of_another_home_are_ignored(
    left: Callable[..., Orphan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left(0)
    with monkeypatch.context() as other:
        other.setenv("FOOTPLATE_HOME", str(tmp_path / "another"))
        assert found() == []
    assert len(found()) == 1


def test_orphan_is_found_by_command_line(run: RunFolder) -> None:
    """Check only the command line, because some systems can't list open files."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", "engine.processes.worker_main"]
    with run.worker_log(1).open("wb") as log:
        process = subprocess.Popen(command, stdout=log)
    try:
        (orphan,) = find_orphans(by_name=False)
        assert (orphan.pid, orphan.run_id, orphan.rank) == (process.pid, run.run_id, 1)
    finally:
        process.kill()
        process.wait()


def test_orphan_that_cannot_be_ended_is_reported(left: Callable[..., Orphan], monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate psutil's results, because a test can't create such a process."""
    orphan = left(0)
    with monkeypatch.context() as system:
        system.setattr(psutil.Process, "terminate", lambda self: (_ for _ in ()).throw(psutil.AccessDenied(self.pid)))
        with pytest.raises(CannotEnd, match=f"does not allow this user to end process {orphan.pid}"):
            end_orphan(orphan)
        system.setattr(psutil.Process, "terminate", lambda self: None)
        system.setattr(psutil.Process, "kill", lambda self: None)
        with pytest.raises(CannotEnd, match="is waiting for the driver or a disk"):
            end_orphan(orphan, patience_s=0.1)
    assert alive(orphan)


def test_doctor_reports_orphans(run: RunFolder, left: Callable[..., Orphan]) -> None:
    assert [finding.grade for finding in orphans()] == ["fine"]
    orphan = left(1)
    (finding,) = orphans()
    assert finding.grade == "limited"
    assert finding.text.startswith(f"rank 1 of {run.run_id} (pid {orphan.pid}) has lost its supervisor")
    assert f"`kill {orphan.pid}`" in finding.text
