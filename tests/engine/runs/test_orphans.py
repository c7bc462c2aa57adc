"""Workers without a supervisor are found, told from all others, and ended."""

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

from engine.cli.doctor import left_over
from engine.contract.job import Job
from engine.runs.folder import RunFolder, create_run, process_alive, process_start
from engine.runs.orphans import CannotEnd, Orphan, end_orphan, find_orphans
from tests.engine.supervisor.conftest import start as start  # noqa: PLC0414  (a fixture)
from tests.engine.supervisor.supervised import Start, gone, wait_until
from tests.support.left_alone import leave, put_away

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the workers are new interpreters")


@pytest.fixture
def run() -> RunFolder:
    return create_run(Job.from_fields(name="night"))


@pytest.fixture
def left(run: RunFolder) -> Iterator[Callable[..., Orphan]]:
    """Leaves workers of the run alone; what the test leaves of them is ended."""
    made: list[Orphan] = []

    def make(rank: int = 0, *words: str) -> Orphan:
        made.append(leave(run, rank, *words))
        return made[-1]

    yield make
    for orphan in made:
        put_away(orphan)


def found() -> list[Orphan]:
    return find_orphans(settle_s=0.0)


def alive(orphan: Orphan) -> bool:
    return process_alive(orphan.pid, orphan.start_time)


def test_that_workers_left_alone_are_found_with_their_run_and_rank(left: Callable[..., Orphan]) -> None:
    assert find_orphans() == []
    orphans = [left(0), left(1)]
    assert find_orphans() == sorted(orphans, key=lambda orphan: orphan.pid)


def test_that_one_that_is_asked_to_end_is_not_there_any_more(left: Callable[..., Orphan]) -> None:
    orphan = left(0)
    end_orphan(orphan)
    assert not alive(orphan)
    assert found() == []
    end_orphan(orphan)  # and again, which is no fault


def test_that_one_that_does_not_listen_is_killed(left: Callable[..., Orphan]) -> None:
    orphan = left(0, "deaf")
    end_orphan(orphan, patience_s=0.3)
    assert not alive(orphan)


def test_that_what_it_has_started_is_counted_with_it_and_ends_with_it(left: Callable[..., Orphan]) -> None:
    orphan = left(0, "child")
    wait_until(lambda: bool(psutil.Process(orphan.pid).children()), "its child")
    (child,) = psutil.Process(orphan.pid).children()
    assert child.name() == "footplate-w0"
    assert found() == [orphan]
    end_orphan(orphan)
    wait_until(lambda: gone(child.pid), "its child to go")


def test_that_a_later_process_with_its_pid_is_never_hit(left: Callable[..., Orphan]) -> None:
    orphan = left(0)
    end_orphan(msgspec.structs.replace(orphan, start_time=orphan.start_time - 60))
    assert alive(orphan)


def test_that_workers_with_a_living_supervisor_are_never_named(start: Start) -> None:
    running = start("forever", 2)
    with running.connect():
        wait_until(lambda: len(psutil.Process(running.process.pid).children()) >= 2, "the workers")
        wait_until(lambda: all(running.run.worker_log(rank).exists() for rank in (0, 1)), "their logs")
        workers = [child for child in psutil.Process(running.process.pid).children() if "-w" in child.name()]
        assert found() == []
        running.run.supervisor_file.unlink()  # not even where the folder does not tell who it is
        assert found() == []
        assert all(worker.is_running() for worker in workers)
    running.process.terminate()
    running.wait()


def test_that_those_of_an_execution_before_are_named_though_the_run_goes_on(
    run: RunFolder, left: Callable[..., Orphan]
) -> None:
    orphan = left(0)
    supervisor = run.supervisor()
    assert supervisor is not None
    here = psutil.Process()
    run.write_supervisor(
        msgspec.structs.replace(supervisor, pid=here.pid, start_time=process_start(here.pid), execution=2)
    )
    assert found() == [orphan]


def test_that_one_whose_run_has_gone_to_the_trash_or_is_deleted_is_still_found(
    run: RunFolder, left: Callable[..., Orphan], tmp_path: Path
) -> None:
    orphan = left(0)
    os.rename(run.path, tmp_path / run.run_id)
    assert found() == [msgspec.structs.replace(orphan, folder=str(tmp_path / run.run_id))]
    shutil.rmtree(tmp_path / run.run_id)
    pid = orphan.pid
    assert [(orphan.pid, orphan.run_id) for orphan in found()] == [(pid, run.run_id)]


def test_that_workers_of_another_home_are_not_named(
    left: Callable[..., Orphan], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    left(0)
    with monkeypatch.context() as other:
        other.setenv("FOOTPLATE_HOME", str(tmp_path / "another"))
        assert found() == []
    assert len(found()) == 1


def test_that_other_systems_find_them_by_their_command_lines(run: RunFolder) -> None:
    """The command line alone is looked at here; what such a system tells of open files is not to be had."""
    command = [sys.executable, "-c", "import time; time.sleep(600)", "engine.processes.worker_main"]
    with run.worker_log(1).open("wb") as log:
        process = subprocess.Popen(command, stdout=log)
    try:
        (orphan,) = find_orphans(by_name=False)
        assert (orphan.pid, orphan.run_id, orphan.rank) == (process.pid, run.run_id, 1)
    finally:
        process.kill()
        process.wait()


def test_that_one_that_cannot_be_ended_is_told(left: Callable[..., Orphan], monkeypatch: pytest.MonkeyPatch) -> None:
    """No test can make a process that survives SIGKILL, nor be another user: the system's answer is made."""
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


def test_that_doctor_names_them_and_what_to_do(run: RunFolder, left: Callable[..., Orphan]) -> None:
    assert [finding.grade for finding in left_over()] == ["fine"]
    orphan = left(1)
    (finding,) = left_over()
    assert finding.grade == "limited"
    assert finding.text.startswith(f"rank 1 of {run.run_id} (pid {orphan.pid}) has lost its supervisor")
    assert f"`kill {orphan.pid}`" in finding.text
